"""Colours as eyes of several kinds see them: contrast, colour blindness and the distance between two colours."""

import numpy as np

# Machado, Oliveira and Fernandes, "A Physiologically-based Model for Simulation of Color Vision Deficiency", 2009:
# all of one kind of cone missing; for linear red, green and blue.
KINDS = {
    "all cones": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}

TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])  # sRGB, D65


def rgb(colour):
    """Red, green and blue from 0 to 1 of "#rrggbb", or of numbers from 0 to 255."""
    if isinstance(colour, str):
        colour = [int(colour.lstrip("#")[i : i + 2], 16) for i in (0, 2, 4)]
    return np.asarray(colour, float) / 255


def linear(colour):
    return np.where(colour <= 0.04045, colour / 12.92, ((colour + 0.055) / 1.055) ** 2.4)


def lab(colours, kind="all cones"):
    """CIE L*a*b* of colours of shape (..., 3), as a person with these cones sees them."""
    seen = np.clip(linear(np.asarray(colours)) @ np.array(KINDS[kind]).T, 0, 1)
    xyz = seen @ TO_XYZ.T / TO_XYZ.sum(axis=1)
    f = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz / (3 * (6 / 29) ** 2) + 4 / 29)
    x, y, z = np.moveaxis(f, -1, 0)
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=-1)


def distance(first, second, kind="all cones"):
    """CIE76: about 2 can just be told apart side by side."""
    return np.linalg.norm(lab(first, kind) - lab(second, kind), axis=-1)


def contrast(first, second):
    """WCAG's ratio, from 1 to 21."""
    low, high = sorted(float(linear(c) @ TO_XYZ[1]) for c in (np.asarray(first), np.asarray(second)))
    return (high + 0.05) / (low + 0.05)
