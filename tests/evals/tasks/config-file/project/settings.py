"""Settings of the service, from config.ini beside this file."""

import configparser
import os


class Settings:
    hosts = ["localhost"]
    retries = 3
    verbose = True
    timeout = 1.0


def load(path=None):
    parser = configparser.ConfigParser()
    parser.read(path or "config.cfg")
    settings = Settings()
    if parser.has_section("services"):
        section = parser["services"]
        settings.hosts = section.get("host").split()
        settings.retries = section.get("retries")
        settings.verbose = bool(section.get("verbose"))
        settings.timeout = section.getfloat("timeout")
    return settings
