// Package replay reviews recorded requests again. It compares the answers with the recorded ones, or with
// those of another configuration.
package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/files"
	"github.com/fastadmit/fastadmit/internal/offline/report"
	"github.com/fastadmit/fastadmit/internal/offline/review"
	"github.com/fastadmit/fastadmit/internal/recording"
)

const (
	// groupsMax is the maximum number of groups of differences: more than anybody reads. Further
	// differences are only grouped by the kind of change.
	groupsMax = 1000

	// faultsMax is how many reviews that could not be repeated are listed. Further ones are only counted.
	faultsMax = 100

	// reviewMax is how long one review may take: as long as at the server.
	reviewMax = 30 * time.Second
)

// Options configure a replay.
type Options struct {
	Chain *admission.Chain
	// Against gives the answers to compare with; nil for the recorded answers.
	Against *admission.Chain
	// LeftOut are plugins that are not in the chain although they are enabled. Reviews that they
	// denied are skipped.
	LeftOut []string
	// Review makes the reviews of manifests, and has the option DryRun.
	Review *review.Options
	// Tree returns the files that may be read for a path of the command line.
	Tree  func(path string) files.Tree
	Stdin io.Reader
	// Progress is called for each review, with the number of reviews so far. It may be nil. Several
	// goroutines may call it at the same time.
	Progress func(reviews int64)
}

// A group has differences of the same kind.
type group struct{ change, plugin, policy, namespace, resource string }

// A session is one replay.
type session struct {
	*Options
	reviews atomic.Int64
	// tolerates says that only what is not allowed any more is a failure.
	tolerates bool

	mu      sync.Mutex
	counted report.Replay
	groups  map[group]*report.Result
	faults  []*report.Result
	lacks   map[string]int // number of reviews by what their source lacks
}

func newSession(o *Options) *session {
	return &session{Options: o, groups: make(map[group]*report.Result), lacks: make(map[string]int)}
}

// Run repeats the reviews in the files and folders that paths name, with all processors. It calls
// emit for each group of differences, with an example, and for reviews that could not be repeated.
func Run(ctx context.Context, o *Options, paths []string, emit func(*report.Result) error) (*report.Replay, error) {
	s := newSession(o)
	workers := runtime.GOMAXPROCS(0)
	records := make(chan record, workers)
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			w := s.newWorker()
			for r := range records {
				w.take(ctx, &r)
			}
		})
	}
	from := source{tree: o.Tree, stdin: o.Stdin, send: func(r record) bool {
		select {
		case records <- r:
			return true
		case <-ctx.Done():
			return false
		}
	}}
	for _, path := range paths {
		if !from.read(path) {
			break
		}
	}
	close(records)
	running.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return s.finish(emit)
}

// finish emits the groups, the largest first, and then the faults. It returns the counts.
func (s *session) finish(emit func(*report.Result) error) (*report.Replay, error) {
	groups := slices.SortedFunc(maps.Values(s.groups), func(a, b *report.Result) int {
		return cmp.Or(cmp.Compare(b.Reviews, a.Reviews), cmp.Compare(a.Change, b.Change), cmp.Compare(a.Plugin, b.Plugin),
			cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Resource, b.Resource))
	})
	slices.SortFunc(s.faults, func(a, b *report.Result) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	for _, result := range slices.Concat(groups, s.faults) {
		if err := emit(result); err != nil {
			return nil, err
		}
	}
	s.counted.Reviews = s.reviews.Load()
	for _, what := range slices.Sorted(maps.Keys(s.lacks)) {
		s.counted.Notes = append(s.counted.Notes, fmt.Sprintf("the source of %s lacks %s", report.Counted(s.lacks[what], "review"), what))
	}
	if more := s.counted.NotAsked - int64(len(s.faults)); more > 0 {
		s.counted.Notes = append(s.counted.Notes, fmt.Sprintf("%d more reviews that could not be asked are not listed", more))
	}
	return &s.counted, nil
}

// A worker repeats one review after the other.
type worker struct {
	*session
	chain, against *reviewer // against is nil without Options.Against
}

func (s *session) newWorker() *worker {
	w := &worker{session: s, chain: newReviewer(s.Chain)}
	if s.Against != nil {
		w.against = newReviewer(s.Against)
	}
	return w
}

// take repeats a review and counts the result.
func (w *worker) take(ctx context.Context, r *record) {
	if r.isUnread && !r.load() {
		other := source{send: func(r record) bool {
			w.take(ctx, &r)
			return ctx.Err() == nil
		}}
		other.open(r.tree, r.file)
		return
	}
	if n := w.reviews.Add(1); w.Progress != nil {
		w.Progress(n)
	}
	result := &report.Result{File: r.file, Line: r.line}
	all, skipped, err := w.differences(ctx, r, result)
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.lacks != "" {
		w.lacks[r.lacks]++
	}
	if r.answer != nil && len(r.answer.LeftOut) > 0 {
		w.lacks["secrets, which were left out when they were recorded; a patch is not compared then"]++
	}
	if skipped {
		w.counted.Skipped++
		return
	}
	w.count(result, all, err)
}

// count counts a review with its differences. err is why it could not be repeated. Goroutines that share s hold s.mu.
func (s *session) count(result *report.Result, all []difference, err error) {
	switch {
	case err != nil:
		s.counted.NotAsked++
		result.Decision, result.Message = report.Broken, err.Error()
		if len(s.faults) < faultsMax {
			s.faults = append(s.faults, result)
		}
	case len(all) == 0:
		s.counted.Same++
	default:
		s.counted.Differing++
		if all[0].isWorse {
			s.counted.Worse++
		}
	}
	for i := range all {
		s.add(&all[i], result)
	}
}

// add counts a difference in its group, as count does.
func (s *session) add(d *difference, result *report.Result) {
	key := group{d.change, d.plugin, result.Policy, result.Namespace, result.Resource}
	if s.groups[key] == nil && len(s.groups) >= groupsMax {
		key = group{change: d.change}
	}
	found := s.groups[key]
	if found == nil {
		example := *result
		example.Decision, example.Change, example.Plugin, example.Message = report.Differs, d.change, d.plugin, d.about
		example.Tolerated = s.tolerates && !d.isWorse
		found = &example
		s.groups[key] = found
	}
	found.Reviews++
}

// differences repeats a review and compares the answers. It describes the review in result. skipped is
// true if a plugin of LeftOut gave the first answer.
func (w *worker) differences(ctx context.Context, r *record, result *report.Result) (all []difference, skipped bool, err error) {
	if r.fault != nil {
		return nil, false, r.fault
	}
	if r.manifest != nil {
		if r.body, err = w.Review.Body(r.manifest); err != nil {
			return nil, false, err
		}
	}
	endpoint := ""
	if r.answer != nil {
		endpoint = r.answer.Endpoint
	}
	body := r.body
	if w.Review.DryRun {
		if body, err = review.DryRun(body); err != nil {
			return nil, false, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, reviewMax)
	defer cancel()
	after, err := w.chain.ask(ctx, body, endpoint, result)
	if err != nil {
		return nil, false, err
	}
	var before *outcome
	switch {
	case w.against != nil:
		before, err = w.against.ask(ctx, body, endpoint, nil)
	case r.answer == nil:
		err = errors.New("there is no answer to compare with: the recording has no file .answer; --against-config compares with another configuration")
	default:
		before, err = recorded(r)
	}
	if err != nil {
		return nil, false, err
	}
	if before.decision != recording.Allowed && slices.ContainsFunc(w.LeftOut, func(name string) bool {
		return before.plugin == name || strings.HasPrefix(before.message, name+": ")
	}) {
		return nil, true, nil
	}
	result.Policy = policyOf(before, after)
	all, err = compare(before, after, func() ([]byte, error) { return comparePatches(body, before.patch, after.patch) })
	return all, false, err
}

// A reviewer reviews requests with the plugins of a chain.
type reviewer struct {
	chain     *admission.Chain
	names     []string
	endpoints map[string]*endpoint
	outcome   *outcome // of the current review; nil if that failed
}

// An endpoint has the phases and plugins of a path of the server.
type endpoint struct {
	phases []admission.Phase
	chain  *admission.Chain
}

func newReviewer(chain *admission.Chain) *reviewer {
	v := &reviewer{endpoints: make(map[string]*endpoint)}
	for _, plugin := range chain.Plugins() {
		v.names = append(v.names, plugin.Name)
	}
	v.chain = chain.Select(func(*admission.Plugin, *admission.Settings) bool { return true })
	v.chain.Observe = func(run admission.Run) {
		if name := v.names[run.Plugin]; run.Outcome == admission.OutcomePatched && !slices.Contains(v.outcome.patchedBy, name) {
			v.outcome.patchedBy = append(v.outcome.patchedBy, name)
		}
	}
	return v
}

// endpoint returns the endpoint with a name, such as "validate/fail". Without a name, it has both phases
// and all plugins.
func (v *reviewer) endpoint(name string) (*endpoint, error) {
	if known := v.endpoints[name]; known != nil {
		return known, nil
	}
	both := []admission.Phase{admission.Mutate, admission.Validate}
	found := &endpoint{phases: both, chain: v.chain}
	if name != "" {
		first, which, _ := strings.Cut(name, "/")
		at := slices.IndexFunc(both, func(p admission.Phase) bool { return p.String() == first })
		if at < 0 || len(v.endpoints) > groupsMax {
			return nil, fmt.Errorf("the recorded answer has the endpoint %q, want mutate or validate, perhaps followed by /fail, /ignore or /<Plugin>", name)
		}
		found.phases = both[at : at+1]
		found.chain = v.chain.Select(func(p *admission.Plugin, settings *admission.Settings) bool {
			ignores := settings.FailurePolicy == admissionregistrationv1.Ignore
			return which == "" || which == "fail" && !ignores || which == "ignore" && ignores || p.Name == which
		})
	}
	v.endpoints[name] = found
	return found, nil
}

// ask returns the answer to a review at an endpoint. It describes the review in result, if that is
// not nil.
func (v *reviewer) ask(ctx context.Context, body []byte, name string, result *report.Result) (*outcome, error) {
	e, err := v.endpoint(name)
	if err != nil {
		return nil, err
	}
	r := codec.Acquire()
	defer r.Release()
	if err := r.Decode(body); err != nil {
		return nil, err
	}
	if result != nil {
		review.Describe(r, result)
		result.UID = strings.Clone(r.UID())
	}
	o := &outcome{decision: recording.Allowed}
	v.outcome = o
	for _, phase := range e.phases {
		_, err := e.chain.Review(ctx, r, phase)
		if failure, ok := errors.AsType[*admission.FailureError](err); ok {
			o.decision, o.plugin, o.message = recording.Failed, failure.Plugin, strings.Clone(failure.Error())
			return o, nil
		}
		if err != nil {
			v.outcome = nil
			return nil, errors.New(err.Error()) // a copy: err may contain views of the review
		}
		if !r.Response.Allowed {
			o.decision = recording.Denied
			break
		}
	}
	for _, warning := range r.Response.Warnings() {
		o.warnings = append(o.warnings, strings.Clone(warning))
	}
	if status := &r.Response.Status; !r.Response.Allowed {
		o.plugin, o.code, o.reason, o.message = r.Response.DeniedBy, status.Code, strings.Clone(status.Reason), strings.Clone(status.Message)
	} else {
		o.patch = slices.Clone(r.Response.Patch)
	}
	return o, nil
}
