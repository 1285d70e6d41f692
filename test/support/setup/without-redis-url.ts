/** The tests' Redis is injected, $REDIS_URL or not: a sluice that is given none is meant to be in memory. */
delete process.env["REDIS_URL"];
