// Command mutation tests tests: it changes the code of packages in one place after
// the other and reports the changes that no test notices.
//
// All mutants of a package are compiled into one test binary, and a number in the
// environment chooses the one that runs. A first run of each test notes which places
// it reaches; a mutant is then run with these tests only, the quickest first.
//
// Its arguments are packages of the module in the working directory, as the go command
// takes them. It exits with 1 if a mutant survives that is not in -explained.
package main

import (
	_ "embed"
	"flag"
	"fmt"
	"os"
	"runtime"
	"time"
)

//go:embed mutants/mutants.go
var mutantsSource []byte

type options struct {
	sample    int
	seed      uint64
	workers   int
	with      string
	oracle    string
	cases     int
	only      string
	again     string
	whole     bool
	list      bool
	poison    bool
	quick     time.Duration
	explained string
	verbose   bool
}

func main() {
	var o options
	flag.IntVar(&o.sample, "sample", 0, "run so many mutants of each package, chosen at random; 0 for all")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "what -sample chooses by")
	flag.IntVar(&o.workers, "workers", runtime.GOMAXPROCS(0), "run so many at once")
	flag.StringVar(&o.with, "with", "", "packages whose tests run too, with mutants that survive those of their own package; separated by commas")
	flag.StringVar(&o.oracle, "oracle", "", "the tests of e2e/oracle that run too, with mutants that survive, as go test -run takes them; empty for none")
	flag.IntVar(&o.cases, "cases", 100, "how many cases the oracle generates for each plugin, for it begins anew with each mutant; ResourceQuota needs 1000")
	flag.StringVar(&o.only, "only", "", "run the mutants whose description matches this regular expression")
	flag.StringVar(&o.again, "again", "", "run the mutants that survived according to this file, the output of a run before")
	flag.BoolVar(&o.list, "list", false, "print the mutants and run none")
	flag.BoolVar(&o.whole, "whole", false, "run the tests without -short too, with mutants that survive")
	flag.BoolVar(&o.poison, "poison", true, "run the tests built with the tag poison too, with mutants that survive")
	flag.DurationVar(&o.quick, "quick", 0, "leave out the package's tests that take more processor time, for a first look; 0 for none")
	flag.StringVar(&o.explained, "explained", "tools/mutation/explained.txt", "file with mutants that make no difference, and why")
	flag.BoolVar(&o.verbose, "v", false, "print what kills each mutant")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: mutation [flags] package...")
		flag.PrintDefaults()
		os.Exit(2)
	}
	survivors, err := run(&o, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutation:", err)
		os.Exit(2)
	}
	if survivors > 0 {
		os.Exit(1)
	}
}

// A session has the state that all packages share.
type session struct {
	*options
	scratch  string
	overlay  string
	packages []*pkg
	mutants  []*mutant
	explain  map[string]string
	again    map[string]bool // the keys of the mutants to run, nil for all
	shared   []*killer       // of -with and -oracle
	broken   []broken        // lines of written files that do not compile
}

func run(o *options, patterns []string) (survivors int, err error) {
	s := &session{options: o}
	if s.explain, err = readExplained(o.explained); err != nil {
		return 0, err
	}
	if o.again != "" {
		if s.again, err = readSurvivors(o.again); err != nil {
			return 0, err
		}
	}
	if s.scratch, err = os.MkdirTemp("", "mutation"); err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(s.scratch) }()
	if err := s.prepare(patterns); err != nil {
		return 0, err
	}
	if o.list {
		for _, p := range s.packages {
			for _, m := range s.chosen(p) {
				fmt.Printf("%s:%d: %s\n", m.file, m.line, m.key())
			}
		}
		return 0, nil
	}
	if err := s.share(); err != nil {
		return 0, err
	}
	fmt.Printf("seed %d\n", o.seed)
	var total tally
	for _, p := range s.packages {
		t, err := s.test(p)
		if err != nil {
			return 0, err
		}
		total.add(t)
	}
	fmt.Printf("total: %s\n", &total)
	return total.survived, nil
}

// prepare writes the packages with their points. It repeats this without the points
// that do not compile until all packages do.
func (s *session) prepare(patterns []string) error {
	l, err := load(patterns)
	if err != nil {
		return err
	}
	s.packages = l.packages
	skip := make(map[string]map[int]bool)
	for {
		if err := s.write(l, skip); err != nil || len(s.broken) == 0 {
			return err
		}
		for _, at := range s.broken {
			line := s.pointAt(at, skip[at.Filename])
			if line == 0 {
				return fmt.Errorf("what was made of the packages does not compile: %s:%d: %s", short(at.Filename), at.Line, at.reason)
			}
			if skip[at.Filename] == nil {
				skip[at.Filename] = make(map[int]bool)
			}
			skip[at.Filename][line] = true
			fmt.Printf("%s:%d: left out, for it does not compile: %s\n", short(at.Filename), line, at.reason)
		}
	}
}

// pointAt returns the line of the last point that begins at or before a position and
// is not left out, 0 for none.
func (s *session) pointAt(at broken, left map[int]bool) (line int) {
	for _, m := range s.mutants {
		if m.file == short(at.Filename) && m.line <= at.Line && !left[m.line] {
			line = max(line, m.line)
		}
	}
	return line
}
