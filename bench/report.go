package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
)

// report is what was measured of one server.
type report struct {
	Endpoint string   `json:"endpoint"`
	Figures  []figure `json:"figures"`
	Own      bool     `json:"started_for_this"`
}

// ratio compares two servers: how many times better the first is.
type ratio struct {
	Name  string  `json:"name"`
	Times float64 `json:"times_better"`
}

// result is what --json writes.
type result struct {
	Reports []report `json:"reports"`
	Ratios  []ratio  `json:"ratios,omitempty"`
}

func answer(reports []report) result {
	r := result{Reports: reports}
	if len(reports) == 2 {
		r.Ratios = ratios(reports[0], reports[1])
	}
	return r
}

func ratios(a, b report) []ratio {
	var out []ratio
	for _, f := range a.Figures {
		for _, g := range b.Figures {
			if g.Name != f.Name || f.Value <= 0 || g.Value <= 0 {
				continue
			}
			times := g.Value / f.Value
			if f.Unit == rate {
				times = f.Value / g.Value
			}
			out = append(out, ratio{f.Name, times})
		}
	}
	return out
}

func (f figure) text() string {
	digits := 0
	switch {
	case f.Value < 1:
		digits = 3
	case f.Value < 100:
		digits = 1
	}
	return grouped(strconv.FormatFloat(f.Value, 'f', digits, 64)) + " " + f.Unit
}

// grouped sets commas between thousands.
func grouped(number string) string {
	whole, rest, _ := strings.Cut(number, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if rest == "" {
		return whole
	}
	return whole + "." + rest
}

// table writes the figures for people: one server with its goals, two with their ratios.
func table(out io.Writer, reports []report) error {
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
			for _, r := range ratios(first, reports[1]) {
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
			fmt.Fprintf(t, "%s\t%s\t\n", figure{Value: f.Goal, Unit: f.Unit}.text(), verdict)
		default:
			fmt.Fprintf(t, "\t\t\n")
		}
	}
	return t.Flush()
}
