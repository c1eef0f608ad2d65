package compare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/recording"
)

// endpointsMax is the maximum number of endpoints of a Reviewer. A server has two for each plugin, and six
// others.
const endpointsMax = 1000

// A Reviewer reviews requests with the plugins of a chain. Only one goroutine at a time may use it.
type Reviewer struct {
	chain     *admission.Chain
	names     []string
	endpoints map[string]*endpoint
	outcome   *Outcome // of the last review; nil if that failed
}

// An endpoint has the phases and plugins of a path of the server.
type endpoint struct {
	phases []admission.Phase
	chain  *admission.Chain
}

// NewReviewer returns a Reviewer for a chain. observe, which may be nil, is called as Chain.Observe.
func NewReviewer(chain *admission.Chain, observe func(plugin string, run *admission.Run)) *Reviewer {
	v := &Reviewer{endpoints: make(map[string]*endpoint)}
	for _, plugin := range chain.Plugins() {
		v.names = append(v.names, plugin.Name)
	}
	v.chain = chain.Select(func(*admission.Plugin, *admission.Settings) bool { return true })
	v.chain.Observe = func(run admission.Run) {
		name := v.names[run.Plugin]
		if run.Outcome == admission.OutcomePatched && !slices.Contains(v.outcome.PatchedBy, name) {
			v.outcome.PatchedBy = append(v.outcome.PatchedBy, name)
		}
		if observe != nil {
			observe(name, &run)
		}
	}
	return v
}

// endpoint returns the endpoint with a name, such as "validate/fail". Without a name, it has both phases
// and all plugins.
func (v *Reviewer) endpoint(name string) (*endpoint, error) {
	if known := v.endpoints[name]; known != nil {
		return known, nil
	}
	both := []admission.Phase{admission.Mutate, admission.Validate}
	found := &endpoint{phases: both, chain: v.chain}
	if name != "" {
		first, which, _ := strings.Cut(name, "/")
		at := slices.IndexFunc(both, func(p admission.Phase) bool { return p.String() == first })
		if at < 0 || len(v.endpoints) > endpointsMax {
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

// Outcome returns the answer to the last review; nil if it could not be asked.
func (v *Reviewer) Outcome() *Outcome { return v.outcome }

// Explain makes the next reviews call explain, as Chain.Explain. Nil ends that.
func (v *Reviewer) Explain(explain func(*admission.Explanation)) {
	clear(v.endpoints) // they have copies of the chain
	v.chain.Explain = explain
}

// Ask returns the answer to a review at an endpoint. It calls describe, which may be nil, with the review
// before the plugins run. The Outcome has no views of the review.
func (v *Reviewer) Ask(ctx context.Context, body []byte, name string, describe func(*codec.Review)) (*Outcome, error) {
	v.outcome = nil
	e, err := v.endpoint(name)
	if err != nil {
		return nil, err
	}
	r := codec.Acquire()
	defer r.Release()
	if err := r.Decode(body); err != nil {
		return nil, err
	}
	if describe != nil {
		describe(r)
	}
	o := &Outcome{Decision: recording.Allowed}
	v.outcome = o
	for _, phase := range e.phases {
		_, err := e.chain.Review(ctx, r, phase)
		if failure, ok := errors.AsType[*admission.FailureError](err); ok {
			o.Decision, o.Plugin, o.Message = recording.Failed, failure.Plugin, strings.Clone(failure.Error())
			return o, nil
		}
		if err != nil {
			v.outcome = nil
			if errors.Is(err, codec.ErrNoMemory) {
				return nil, codec.ErrNoMemory
			}
			return nil, errors.New(err.Error()) // a copy: err may contain views of the review
		}
		if !r.Response.Allowed {
			o.Decision = recording.Denied
			break
		}
	}
	for _, warning := range r.Response.Warnings() {
		o.Warnings = append(o.Warnings, strings.Clone(warning))
	}
	if status := &r.Response.Status; !r.Response.Allowed {
		o.Plugin, o.Code, o.Reason, o.Message = r.Response.DeniedBy, status.Code, strings.Clone(status.Reason), strings.Clone(status.Message)
	} else {
		o.Patch = slices.Clone(r.Response.Patch)
	}
	return o, nil
}
