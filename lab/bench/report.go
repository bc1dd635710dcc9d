package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
)

// serverReport is what was measured of one server.
type serverReport struct {
	Endpoint string          `json:"endpoint"`
	Figures  []measuredValue `json:"figures"`
	Own      bool            `json:"started_for_this"`
}

// figureRatio compares two servers: how many times better the first is.
type figureRatio struct {
	Name  string  `json:"name"`
	Times float64 `json:"times_better"`
}

// benchResult is what --json writes.
type benchResult struct {
	Reports []serverReport `json:"reports"`
	Ratios  []figureRatio  `json:"ratios,omitempty"`
}

func buildResult(reports []serverReport) benchResult {
	r := benchResult{Reports: reports}
	if len(reports) == 2 {
		r.Ratios = compareReports(reports[0], reports[1])
	}
	return r
}

func compareReports(a, b serverReport) []figureRatio {
	var out []figureRatio
	for _, f := range a.Figures {
		for _, g := range b.Figures {
			if g.Name != f.Name || f.Value <= 0 || g.Value <= 0 {
				continue
			}
			times := g.Value / f.Value
			if f.Unit == rate {
				times = f.Value / g.Value
			}
			out = append(out, figureRatio{f.Name, times})
		}
	}
	return out
}

func (f measuredValue) text() string {
	digits := 0
	switch {
	case f.Value < 1:
		digits = 3
	case f.Value < 100:
		digits = 1
	}
	return groupThousands(strconv.FormatFloat(f.Value, 'f', digits, 64)) + " " + f.Unit
}

// groupThousands sets commas between thousands.
func groupThousands(number string) string {
	whole, rest, _ := strings.Cut(number, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if rest == "" {
		return whole
	}
	return whole + "." + rest
}

// writeTable writes the figures for people: one server with its goals, two with their ratios.
func writeTable(out io.Writer, reports []serverReport) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	first := reports[0]
	if len(reports) == 2 {
		fmt.Fprintf(t, "\t%s\t%s\ttimes better\t\n", first.Endpoint, reports[1].Endpoint)
	} else {
		fmt.Fprintf(t, "\t%s\tgoal\t\t\n", first.Endpoint)
	}
	for _, f := range first.Figures {
		fmt.Fprintf(t, "%s\t%s\t", f.Name, f.text())
		switch {
		case len(reports) == 2:
			other := ""
			for _, g := range reports[1].Figures {
				if g.Name == f.Name {
					other = g.text()
				}
			}
			fmt.Fprintf(t, "%s\t", other)
			for _, r := range compareReports(first, reports[1]) {
				if r.Name == f.Name {
					fmt.Fprintf(t, "%.1f", r.Times)
				}
			}
			fmt.Fprintf(t, "\t\n")
		case f.Goal > 0:
			verdict := "reached"
			if !f.better(f.Value, f.Goal) {
				verdict = "MISSED"
			}
			fmt.Fprintf(t, "%s\t%s\t\n", measuredValue{Value: f.Goal, Unit: f.Unit}.text(), verdict)
		default:
			fmt.Fprintf(t, "\t\t\n")
		}
	}
	return t.Flush()
}
