"""Shell in the server: jobs that name sites have their commands run where their data is."""
