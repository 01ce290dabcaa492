"""A signed account of what a run cost in privacy, that anyone can check again."""

from dpfl.certificate.contents import certify, headline
from dpfl.certificate.sections import Certificate
from dpfl.certificate.verify import Verdict, verify
from dpfl.protocol.keys import new_key

__all__ = ["Certificate", "Verdict", "certify", "headline", "new_key", "verify"]
