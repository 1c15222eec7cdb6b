"""Multilinear algebra on plain tensors: products along axes that never form a Kronecker product."""

from pe_lightning.linalg.mode_products import contraction_order, mode_product, mode_products, rowwise_products

__all__ = ["contraction_order", "mode_product", "mode_products", "rowwise_products"]
