"""Prove the numbered invariants of a log, from its files alone or against a copy from before."""

from siltstone.cleaner.verify.findings import Finding, Severity
from siltstone.cleaner.verify.partition import Report, VerifyRequest, verify_partition

__all__ = ["Finding", "Report", "Severity", "VerifyRequest", "verify_partition"]
