"""Values that cross layer borders: frozen, slotted, keyword-only, valid once built. Imports no other part of perfci."""
