package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"mtrelay/loadtest"
	"mtrelay/loadtest/plot"
)

type loadPlot struct {
	Reports []string `arg:"" name:"report" help:"Files that --json wrote."`
	SVG     string   `name:"svg" placeholder:"FILE" help:"Where to draw; standard output when not given."`
}

// Run draws memory against connections and the percentiles of latencies, as far as the reports have them.
func (l loadPlot) Run(on console) error {
	var reports []loadtest.Report
	for _, name := range l.Reports {
		r, err := readReport(name)
		if err != nil {
			return err
		}
		reports = append(reports, r)
	}
	if l.SVG == "" {
		return plot.Write(on.out, reports)
	}
	f, err := os.Create(l.SVG)
	if err != nil {
		return fmt.Errorf("--svg: %w", err)
	}
	return errors.Join(plot.Write(f, reports), f.Close())
}

func readReport(name string) (r loadtest.Report, err error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("%s is no report of a load test, as --json writes them: %w", name, err)
	}
	return r, nil
}
