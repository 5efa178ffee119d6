"""Engines that spread the steps over many machines; each is an extra and is imported where it is used."""
