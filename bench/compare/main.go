// Command compare measures fastadmit, other ways to write an admission webhook, and the floor: the
// cost of the transport alone. All do the same work in processes of their own, on a processor that
// the load generator does not use, and are measured in turns. ../README.md describes the method.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"slices"
	"strings"

	"github.com/fastadmit/fastadmit/bench/compare/contest"
	"github.com/fastadmit/fastadmit/bench/growth"
)

type options struct {
	quick      bool
	scenarios  string
	contenders string
	write      bool
	tables     bool
	file       string
	documents  string
	pictures   string
}

func main() {
	var o options
	flag.BoolVar(&o.quick, "quick", false, "measure for two or three minutes: shows that everything works")
	flag.StringVar(&o.scenarios, "scenarios", "", "only these scenarios, of validate,mutate,ten,update,policy,bursts,policies,worst; "+
		"all if empty, with -quick all but worst")
	flag.StringVar(&o.contenders, "contenders", "", "only these contenders; floor and fastadmit always are; all if empty")
	flag.BoolVar(&o.write, "write", false, "write the results to -file, those of policies to growth.json beside it, the tables into "+
		"-documents and the pictures into -pictures")
	flag.BoolVar(&o.tables, "tables", false, "do not measure; write the tables of -file into -documents and its pictures into -pictures")
	flag.StringVar(&o.file, "file", "results.json", "file with the results")
	flag.StringVar(&o.documents, "documents", strings.Join(documents, ","), "documents with places for the tables")
	flag.StringVar(&o.pictures, "pictures", "../../docs", "folder for the pictures")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := o.run(ctx, os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

func (o *options) run(ctx context.Context, stdout, progress io.Writer) error {
	if o.tables {
		results, err := readResults(o.file)
		if err != nil {
			return err
		}
		return o.writeDocuments(results)
	}
	results, err := o.measure(ctx, progress)
	if err != nil {
		return err
	}
	for _, name := range tableNames {
		fmt.Fprintln(stdout, results.table(name))
	}
	if !o.write {
		return nil
	}
	if err := results.write(o.file); err != nil {
		return err
	}
	// If only some of them were measured, the documents keep the others.
	if results, err = readResults(o.file); err != nil {
		return err
	}
	return o.writeDocuments(results)
}

// writeDocuments writes the tables and pictures.
func (o *options) writeDocuments(results *Results) error {
	if err := results.writeDocuments(strings.Split(o.documents, ",")); err != nil {
		return err
	}
	return results.writePictures(o.pictures)
}

func (o *options) measure(ctx context.Context, progress io.Writer) (*Results, error) {
	dir, err := os.MkdirTemp("", "fastadmit-compare")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	named := isIn(o.scenarios)
	worst, err := o.worst(ctx, progress) // before the arena restricts this process to some processors
	if err != nil {
		return nil, err
	}
	fmt.Fprintln(progress, "building the contenders")
	arena, err := contest.NewArena(ctx, dir, contest.Contenders...)
	if err != nil {
		return nil, err
	}
	scenarios, err := contest.Scenarios()
	if err != nil {
		return nil, err
	}
	m := &measurer{plan: full, arena: arena, named: isIn(o.contenders, contest.Floor), progress: progress}
	largest := math.MaxInt
	if o.quick {
		m.plan, largest = quick, growthQuick
	}
	run := growth.NewRun(ctx)
	results := &Results{
		Command: "go run . " + strings.Join(os.Args[1:], " "), Date: run.Date, Commit: run.Commit,
		Machine: run.Machine, CPUs: arena.CPUs, Plan: m.plan, Worst: worst,
	}
	for _, s := range scenarios {
		if !named(s.Name) {
			continue
		}
		result, err := m.scenario(ctx, s)
		if err != nil {
			return nil, err
		}
		results.Scenarios = append(results.Scenarios, *result)
	}
	if named("bursts") {
		if results.Bursts, err = m.bursts(ctx, scenarios[0]); err != nil {
			return nil, err
		}
	}
	if named(growthWork) {
		rows, err := m.growth(ctx, largest)
		if err != nil {
			return nil, err
		}
		results.growth.Reviews = &growth.Reviews{Run: run, CPUs: arena.CPUs, Rows: rows}
	}
	if results.isEmpty() && results.growth.Reviews == nil {
		return nil, errors.New("-scenarios: got no known scenario")
	}
	return results, nil
}

// worst measures the largest reviews, nil if -scenarios or -quick leaves them out.
func (o *options) worst(ctx context.Context, progress io.Writer) (*Worst, error) {
	fields := worstFields
	if o.quick {
		fields = worstFieldsQuick
	}
	if !isIn(o.scenarios)("worst") || o.quick && o.scenarios == "" {
		return nil, nil
	}
	fmt.Fprintln(progress, "worst: the largest reviews")
	return measureWorst(ctx, fields)
}

// isIn returns a function that reports whether a name is in a list with commas or among the others.
// An empty list contains all names.
func isIn(list string, others ...string) func(name string) bool {
	names := append(strings.Split(list, ","), others...)
	return func(name string) bool { return list == "" || slices.Contains(names, name) }
}
