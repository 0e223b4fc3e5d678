"""Alembic's entry: runs the migrations on the connection, and in the transaction, that the caller hands over."""

from alembic import context

given = context.config.attributes
context.configure(
    connection=given["connection"],
    target_metadata=given["tables"].metadata,
    version_table=given["tables"].version_table,
    transactional_ddl=True,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
