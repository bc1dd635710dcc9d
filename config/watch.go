package config

// OTel is [otel].
type OTel struct {
	// Endpoint is the URL of a collector of traces that speaks OTLP over HTTP; empty: nothing is traced.
	Endpoint string
	// Ratio is how many of a hundred requests are traced, with all that they lead to.
	Ratio int
}

var watchOptions = []Option{
	newOption("DEFAULT", "use_json", "false", boolean, func(c *Config) *bool { return &c.Default.UseJSON },
		"Log one JSON object a line instead of text."),
	newOption("otel", "endpoint", "", webURL, func(c *Config) *string { return &c.OTel.Endpoint },
		"The URL of a collector of traces that speaks OTLP over HTTP, such as http://127.0.0.1:4318. Each request is a trace; it includes the actions of the job that it started, in any process. Empty: salvor sends no traces. Releases can send traces; a binary of your own can after make build TAGS=otlp, and otherwise refuses this option."),
	newOption("otel", "ratio", "100", integerSyntax(0, 100), func(c *Config) *int { return &c.OTel.Ratio },
		"The percentage of requests that salvor traces."),
}
