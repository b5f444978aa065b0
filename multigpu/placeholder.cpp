namespace kvpool {}
