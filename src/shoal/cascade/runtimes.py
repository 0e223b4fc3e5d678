"""The declaration of the runtime `cascade`; it imports nothing of what it names."""

from shoal.inference import RuntimeDeclaration

CASCADE = RuntimeDeclaration(
    name="cascade",
    platform="shoal_cascade",
    suffixes=(".cascade",),
    opener="shoal.cascade.runtime:CascadeRuntime",
    packages=("scipy",),
    extra="cascade",
    options="shoal.cascade.options:CascadeOptions",
    check="shoal.cascade.runtime:check_file",
    steady=False,  # a row may need one stage or all
)
