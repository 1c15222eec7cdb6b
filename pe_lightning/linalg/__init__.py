"""Multilinear algebra on plain tensors: products along axes that never form a Kronecker product, and factorisations."""

from pe_lightning.linalg.factor import AxisFactor, FactorisationError, factor_axis
from pe_lightning.linalg.local import LocalMatrix, Matrix, encode_axis, products
from pe_lightning.linalg.mode_products import contraction_order, mode_product, mode_products, rowwise_products
from pe_lightning.linalg.precision import full_precision

__all__ = [
    "AxisFactor",
    "FactorisationError",
    "LocalMatrix",
    "Matrix",
    "contraction_order",
    "encode_axis",
    "factor_axis",
    "full_precision",
    "mode_product",
    "mode_products",
    "products",
    "rowwise_products",
]
