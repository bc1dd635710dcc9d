package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// row is one line of the table that a run prints.
func (r result) row() string {
	why := firstLines(r.why)
	if r.timedOut {
		why += " (time-out)"
	}
	return strings.TrimRight(fmt.Sprintf("%-5s %-16s %-34s %5.1fs  %s", r.id, r.verdict, r.file, r.took.Seconds(), why), " ")
}

// firstLines shortens what a compiler says.
func firstLines(text string) string {
	lines := strings.SplitN(text, "\n", 5)
	return strings.Join(lines[:min(len(lines), 4)], " | ")
}

// report prints the result of all rows that ran. It fails if too many mutants survive, or if a row proves nothing: it is stale, it
// does not compile, or its tests fail without the mutant.
func report(out io.Writer, results []result) error {
	count := map[verdict]int{}
	var timeouts []string
	var took time.Duration
	for _, r := range results {
		count[r.verdict]++
		took += r.took
		if r.timedOut {
			timeouts = append(timeouts, r.id)
		}
	}
	title(out, results, survived, "survivors: the change is in place and no test fails")
	title(out, results, notRun, "not run")
	title(out, results, stale, "stale: write the old text anew in lab/mutants/mutants.txt")
	title(out, results, noCompile, "mutants that do not compile")
	title(out, results, red, "tests that fail without their mutant, or are not there")
	if len(timeouts) > 0 {
		fmt.Fprintf(out, "\nkilled by a time-out: %s (%d times what the test takes without the mutant, at least %s)\n", strings.Join(timeouts, " "), slack, leastBound)
	}
	ran := count[killed] + count[survived]
	share := 0.0
	if ran > 0 {
		share = 100 * float64(count[survived]) / float64(ran)
	}
	fmt.Fprintf(out, "\n%d mutants: %d run, %d killed, %d survived (%.1f %%; at most %d %% may); %d equivalent, %d not run; %s of work\n",
		len(results), ran, count[killed], count[survived], share, maxSurvivors, count[equivalent], count[notRun], took.Round(time.Second))
	if broken := count[stale] + count[noCompile] + count[red]; broken > 0 {
		return fmt.Errorf("%d rows of the table prove nothing; they are named above", broken)
	}
	if share > maxSurvivors {
		return fmt.Errorf("%d of %d mutants survive, which is more than %d %%", count[survived], ran, maxSurvivors)
	}
	return nil
}

// title prints the rows of one verdict with what is wrong, if there are any.
func title(out io.Writer, results []result, v verdict, text string) {
	printed := false
	for _, r := range results {
		if r.verdict != v {
			continue
		}
		if !printed {
			fmt.Fprintf(out, "\n%s\n", text)
			printed = true
		}
		fmt.Fprintf(out, "  %s %s: %s\n", r.id, r.file, r.what)
		switch {
		case r.why != "":
			fmt.Fprintf(out, "      %s\n", strings.ReplaceAll(r.why, "\n", "\n      "))
		case v == survived:
			fmt.Fprintf(out, "      tried: %s -run %s\n", strings.Join(r.packages, " "), r.run)
		}
	}
}
