"""The packages of the distribution; all else is in pyproject.toml, which can name a mapped package only if it names all."""

from setuptools import find_namespace_packages, setup

RECIPES = "pe_lightning.configs"

setup(
    packages=[
        *find_namespace_packages(include=["pe_lightning*", "pe_fill*", "pe_papers*"]),
        *(f"{RECIPES}.{kind}" for kind in find_namespace_packages("configs")),
    ],
    package_dir={RECIPES: "configs"},
)
