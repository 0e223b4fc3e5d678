"""The declaration of a component, as a component imports it. Its definition stands below the seam, where manifests and
the console find what is declared."""

from shoal.base.component import Component as Component
