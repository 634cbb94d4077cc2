"""Where live nodes keep what must survive a crash."""
