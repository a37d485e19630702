"""Template of a patch file that conforms to the rules of the series."""

from __future__ import annotations

PATCH = """From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001
From: A <a@b>
Date: Fri, 20 Nov 2026 23:08:45 +0000
Subject: [PATCH] {subject}

{reason}

diff --git a/clients/src/main/java/A.java b/clients/src/main/java/A.java
--- a/clients/src/main/java/A.java
+++ b/clients/src/main/java/A.java
@@ -1 +1 @@
-a
+b
"""
