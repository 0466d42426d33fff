// Command bench measures shelld against what it is to be compared with, in one
// run and in turns, so that a noisy machine is noisy for both. It prints one
// table of ratios and writes the figures as JSON. `make bench` runs it.
//
// A target that is missed is printed as missed; a reference that is not
// installed is named as skipped.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"text/tabwriter"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	bin := flag.String("bin", "bin", "folder of shelld and shellctl")
	out := flag.String("json", "dist/bench.json", "file for the figures")
	quick := flag.Bool("quick", false, "a tenth of the samples")
	flag.Parse()

	d, err := start(ctx, *bin)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.stop(ctx)) }()
	scale := 1
	if *quick {
		scale = 10
	}
	var rows []row
	for _, measure := range []func(context.Context, *daemon, int) ([]row, error){measureRun, measureExec} {
		more, err := measure(ctx, d, scale)
		if err != nil {
			return err
		}
		rows = append(rows, more...)
	}
	if err := printTable(rows); err != nil {
		return err
	}
	return writeJSON(*out, rows)
}

func printTable(rows []row) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "#\twhat\tours\treference\tratio\ttarget\tmet\tn")
	for _, r := range rows {
		if r.Skipped != "" {
			fmt.Fprintf(w, "%s\t%s\t\t\t\t%s\tskipped: %s\t\n", r.ID, r.What, r.Target, r.Skipped)
			continue
		}
		met := "met"
		if !r.Met {
			met = "MISSED"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%.2f\t%s\t%s\t%d\n", r.ID, r.What, milli(r.Ours), milli(r.Reference), r.Ratio, r.Target, met, r.N)
	}
	return w.Flush()
}

func milli(d time.Duration) string {
	return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond))
}

func writeJSON(file string, rows []row) error {
	text, err := json.MarshalIndent(rows, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll("dist", 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}
