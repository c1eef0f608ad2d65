package suite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/files"
	"github.com/fastadmit/fastadmit/internal/offline/manifest"
	"github.com/fastadmit/fastadmit/internal/offline/report"
	"github.com/fastadmit/fastadmit/internal/offline/review"
	"github.com/fastadmit/fastadmit/internal/policy/translate"
)

// Setup contains the plugins, policies, cluster and request of a case.
type Setup struct {
	Policies, State, Objects, Old []manifest.Item
	// Functions is true if Policies that were translated from those of another engine call its functions. Reads is what
	// they read.
	Functions bool
	Reads     []translate.Read

	BindPolicies              string
	EnableAdmissionPlugins    []string
	AdmissionFile, ConfigFile string // "" for none
	// Tree has these files and those that they name.
	Tree files.Tree

	User         review.User
	Namespace    string
	Operation    codec.Operation
	WorkloadPods bool
	// GuessKinds treats unknown kinds as namespaced resources, as engines without a cluster do.
	// NoDefaults reviews objects without the defaults that kube-apiserver sets.
	GuessKinds, NoDefaults bool
	// Explain sets the Explanation of the results.
	Explain bool
}

// ErrNoPlugin is an error of Runner.Review: no plugin is enabled.
var ErrNoPlugin = errors.New("no admission plugin is enabled")

func (s *Suite) setup(c *Case) *Setup {
	setup := &Setup{
		Policies: slices.Concat(s.policies, c.policies), State: slices.Concat(s.state, c.state), Objects: slices.Clone(c.object), Old: slices.Clone(c.old),
		BindPolicies: s.BindPolicies, EnableAdmissionPlugins: s.EnableAdmissionPlugins,
		AdmissionFile: s.path(s.AdmissionControlConfigFile), ConfigFile: s.path(s.Config), Tree: s.tree,
		Namespace: cmp.Or(c.Namespace, s.Namespace, metav1.NamespaceDefault), Operation: c.Operation,
		Explain: len(c.Expect.Policies) > 0,
	}
	if user := cmp.Or(c.User, s.User); user != nil {
		setup.User = *user
	}
	if pods := cmp.Or(c.WorkloadPods, s.WorkloadPods); pods != nil {
		setup.WorkloadPods = *pods
	}
	if defaults := cmp.Or(c.Defaults, s.Defaults); defaults != nil {
		setup.NoDefaults = !*defaults
	}
	return setup
}

// Outcome is the result of a case, or of a suite that cannot be read.
type Outcome struct {
	Suite, Case string
	File        string
	Line        int
	Took        time.Duration

	Failures []string // differences from the expected result; none if the case passes
	Broken   error    // why the case or the suite could not run
	Skipped  bool     // the case did not run: FailFast is set and another one failed, or ctx ended
}

// Runner runs suites.
type Runner struct {
	// Review reviews the objects of a case. notes are shown if the case fails. Several
	// goroutines call Review at the same time.
	Review func(ctx context.Context, s *Setup) (results []*report.Result, notes []string, err error)
	// Select, if set, selects the cases to run. It matches "suite/case".
	Select *regexp.Regexp
	// FailFast skips the remaining cases when a case fails.
	FailFast bool
}

// work is a case to run.
type work struct {
	suite *Suite
	c     *Case
	check *check // of another engine
}

// Run runs suites, with one case per CPU at the same time. The outcomes are in
// the order of the files and cases. A suite that cannot be read is one outcome with Broken;
// the other suites run nevertheless. The notes are on suites of fastadmit, in the same order.
func (r *Runner) Run(ctx context.Context, suites []File) (outcomes []Outcome, notes []Note) {
	var all []work
	for _, file := range suites {
		name, checks, isForeign, err := readForeign(file)
		for i := range checks {
			if c := &checks[i]; r.Select == nil || r.Select.MatchString(name+"/"+c.name) {
				outcomes = append(outcomes, Outcome{Suite: name, Case: c.name, File: file.Name, Line: c.line})
				all = append(all, work{check: c})
			}
		}
		if isForeign && err == nil {
			continue
		}
		var s *Suite
		if err == nil {
			s, err = Read(file)
		}
		if err != nil {
			outcomes, all = append(outcomes, Outcome{Suite: file.Name, File: file.Name, Broken: err}), append(all, work{})
			continue
		}
		for i := range s.Cases {
			c := &s.Cases[i]
			if r.Select == nil || r.Select.MatchString(s.Name+"/"+c.Name) {
				outcomes = append(outcomes, Outcome{Suite: s.Name, Case: c.Name, File: s.file, Line: c.line})
				all = append(all, work{suite: s, c: c})
			}
		}
	}
	var next atomic.Int64
	var failed atomic.Bool
	var workers sync.WaitGroup
	for range min(len(all), runtime.GOMAXPROCS(0)) {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(all); i = int(next.Add(1)) - 1 {
				o := &outcomes[i]
				if o.Broken == nil {
					if o.Skipped = r.FailFast && failed.Load() || ctx.Err() != nil; o.Skipped {
						continue
					}
					if c := all[i].check; c != nil {
						r.runCheck(ctx, c, o)
					} else {
						r.run(ctx, all[i].suite, all[i].c, o)
					}
				}
				if o.Broken != nil || len(o.Failures) > 0 {
					failed.Store(true)
				}
			}
		})
	}
	workers.Wait()
	return outcomes, notesOn(outcomes, all)
}

func (r *Runner) runCheck(ctx context.Context, c *check, o *Outcome) {
	if o.Skipped = c.skipped; o.Skipped {
		return
	}
	began := time.Now()
	defer func() { o.Took = time.Since(began) }()
	o.Failures, o.Broken = c.run(ctx, r)
}

func (r *Runner) run(ctx context.Context, s *Suite, c *Case, o *Outcome) {
	began := time.Now()
	defer func() { o.Took = time.Since(began) }()
	setup := s.setup(c)
	given := slices.Clone(setup.Policies)
	setup.Explain = s.uses.begin(given) || setup.Explain
	results, notes, err := r.Review(ctx, setup)
	switch {
	case errors.Is(err, ErrNoPlugin):
		o.Broken = s.document.Errorf("policies",
			"%v: name files with policies here, or plugins in enableAdmissionPlugins; fastadmit plugins lists all", ErrNoPlugin)
		return
	case err != nil:
		o.Broken = err
		return
	}
	s.uses.end(given, results)
	for _, result := range results {
		if broken := brokenIn(result); broken != nil {
			o.Broken = fmt.Errorf("%s cannot be reviewed: %s", cmp.Or(broken.Object(), "the object"), broken.Message)
			return
		}
		for _, difference := range append(c.Expect.compare(result), c.compareWhole(result)...) {
			if len(results) > 1 {
				difference = result.Location() + ": " + result.Object() + ": " + difference
			}
			o.Failures = append(o.Failures, difference)
		}
	}
	if len(o.Failures) > 0 {
		o.Failures = append(o.Failures, notes...)
	}
}

func brokenIn(root *report.Result) (broken *report.Result) {
	root.Walk(func(r *report.Result, _ int) {
		if broken == nil && r.Decision == report.Broken {
			broken = r
		}
	})
	return broken
}
