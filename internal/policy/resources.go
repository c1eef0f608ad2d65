package policy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/internal/customresource"
	"github.com/fastadmit/fastadmit/internal/customresource/status"
	"github.com/fastadmit/fastadmit/internal/policy/schemas"
	"github.com/fastadmit/fastadmit/internal/wake"
)

const (
	// retryPause is after how long a request to the API server that failed is made again.
	retryPause = customresource.RetryPause
	// settlePause is when policies are refreshed again whose parameters are not listed yet.
	settlePause = 2 * time.Second
)

// resources are the custom resources of a kind: policies and bindings.
type resources[P, B metav1.Object, E any] struct {
	kind               *Kind[P, B]
	policies, bindings *cluster.Objects[*cluster.JSON]
	params             *clusterParams
	compile            Compile[P, E]
	schemas            *schemas.Schemas
	discovery          *cluster.Discovery
	replicas           *replicas
	exceptions         *exceptionResources // nil for a kind without exceptions

	mu       sync.Mutex
	compiled map[string]*compiledPolicy[E] // by name
	bound    map[string]*boundBinding
}

// compiledPolicy is a policy with the results of compiling it.
type compiledPolicy[E any] struct {
	object    *cluster.JSON
	policy    *Policy[E]
	paramKind *schema.GroupVersionKind
	err       error // why it is invalid

	bound    bool // a binding names it
	bindings boundBy
	enforced bool   // requests are evaluated with it, and with all of its bindings
	revision string // of it and its bindings, as reports have it

	status   *status.Status // of statusOf
	statusOf *cluster.JSON
	writer   status.Writer
	dueSince time.Time // since when the status must be written, zero if it need not
	doubted  time.Time // since when the condition Enforced in the status is outdated, zero if it is not

	typeChecking *admissionregistrationv1.TypeChecking // the result, nil for none
	typesChecked bool
}

// boundBinding is a binding as custom resource and for dispatch.
type boundBinding struct {
	object  *cluster.JSON
	binding *Binding
}

func newResources[P, B metav1.Object, E any](kind *Kind[P, B], view *cluster.View, params *clusterParams, compile Compile[P, E]) *resources[P, B, E] {
	r := &resources[P, B, E]{
		kind: kind, params: params, compile: compile,
		schemas: schemas.In(view), discovery: cluster.DiscoveryIn(view),
		policies: kind.policies.In(view), bindings: kind.bindings.In(view),
		compiled: make(map[string]*compiledPolicy[E]), bound: make(map[string]*boundBinding),
	}
	r.replicas = newReplicas(cluster.PolicyReplicas.In(view), kind.Name, r.enforced)
	return r
}

// newFollower returns a Follower without Refresh and Rules.
func (r *resources[P, B, E]) newFollower() *customresource.Follower {
	f := &customresource.Follower{
		Resources: []customresource.Watched{r.policies, r.bindings},
		Related:   []customresource.Watched{r.replicas.objects},
		Background: []func(ctx context.Context, refreshed, changed wake.Signal){
			func(ctx context.Context, refreshed, _ wake.Signal) { r.replicas.run(ctx, refreshed) }, r.runStatus,
		},
	}
	if r.exceptions != nil {
		f.Resources = append(f.Resources, r.exceptions.objects)
	}
	return f
}

// refresh compiles the policies that changed, and returns all. It changes nothing if not all
// of them are known. The caller holds r.mu.
func (r *resources[P, B, E]) refresh(ctx context.Context) (Set[E], error) {
	policies, err := r.policies.List("")
	if err != nil {
		return nil, err
	}
	bindings, err := r.refreshBindings()
	if err != nil {
		return nil, err
	}
	known := make(map[string]*compiledPolicy[E])
	used := make(wantedKinds)
	var set Set[E]
	for _, object := range policies {
		c := r.refreshPolicy(object)
		known[object.GetName()] = c
		bound := bindings[object.GetName()]
		c.bound, c.revision, c.enforced = len(bound) > 0, revisionOf(object, bound), false
		if c.policy == nil {
			continue
		}
		own := *c.policy
		own.params, own.bound, own.err = r.params, c.boundBy(bound), c.err
		if len(bound) > 0 && c.paramKind != nil {
			used.add(*c.paramKind, bound)
		}
		set = append(set, &own)
	}
	r.compiled = known
	failed := r.params.use(ctx, used)
	for _, p := range set {
		c := known[p.Name]
		if kind := c.paramKind; kind != nil && failed[*kind] != nil {
			p.err = errors.Join(p.err, failed[*kind])
		}
		c.enforced = r.isEnforced(c, p)
	}
	return set, nil
}

// boundBy returns the bindings of the policy for dispatch. It makes them anew only if they changed.
func (c *compiledPolicy[E]) boundBy(all []*Binding) boundBy {
	if c.bindings.index == nil || !slices.Equal(c.bindings.all, all) {
		c.bindings = newBoundBy(all)
	}
	return c.bindings
}

// isEnforced reports whether a policy and all of its bindings are evaluated on requests. They
// are not if one of them is invalid, or parameters are not listed yet.
func (r *resources[P, B, E]) isEnforced(c *compiledPolicy[E], p *Policy[E]) bool {
	if len(p.bindings()) == 0 || p.err != nil || p.compileErr != nil || slices.ContainsFunc(p.bindings(), func(b *Binding) bool { return b.err != nil }) {
		return false
	}
	if c.paramKind == nil {
		return true
	}
	err, waiting := r.params.unready(*c.paramKind)
	return err == nil && !waiting
}

// enforced returns the policies that this replica enforces, sorted by name.
func (r *resources[P, B, E]) enforced() []reportedPolicy {
	all := []reportedPolicy{}
	for _, name := range r.names() {
		r.mu.Lock()
		if c := r.compiled[name]; c != nil && c.enforced {
			all = append(all, reportedPolicy{name, c.object.GetGeneration(), c.revision})
		}
		r.mu.Unlock()
	}
	return all
}

// revisionOf returns a digest that changes with the policy and with its bindings.
func revisionOf(object *cluster.JSON, bindings []*Binding) string {
	hash := sha256.New()
	fmt.Fprintf(hash, "%s %d\n", object.GetUID(), object.GetGeneration())
	for _, b := range bindings {
		fmt.Fprintf(hash, "%s %s\n", b.Name, b.revision)
	}
	return hex.EncodeToString(hash.Sum(nil)[:8])
}

// refreshPolicy compiles a policy unless it was compiled already. An invalid policy, which was
// written while fastadmit did not run, fails on the requests that its rules select.
func (r *resources[P, B, E]) refreshPolicy(object *cluster.JSON) *compiledPolicy[E] {
	last := r.compiled[object.GetName()]
	if last != nil && customresource.IsSame(last.object, object) {
		last.object = object
		return last
	}
	c := &compiledPolicy[E]{object: object}
	document := r.kind.newPolicy()
	if err := customresource.Decode(object, document); err != nil {
		c.err = err // it is unknown which requests it selects
		return c
	}
	c.policy, c.paramKind, c.err = compileChecked(r.kind, document, nil, func(document P) (E, error) {
		return r.compile(document, false)
	})
	return c
}

// compileChecked compiles a policy. err says why it is invalid: fault, or what the checks find. The policy
// then fails on the requests that its rules select; it is nil if it has none.
func compileChecked[P, B metav1.Object, E any](kind *Kind[P, B], document P, fault error, compile func(P) (E, error),
) (policy *Policy[E], paramKind *schema.GroupVersionKind, err error) {
	policy, err = newPolicy[E](document)
	if err != nil {
		policy.matcher = policy.matcher.WithoutSelectors()
	}
	if checked := kind.checkPolicy(document).ToAggregate(); checked != nil {
		err = checked
	}
	if fault != nil {
		err = fault
	}
	switch {
	case err == nil:
		if k := kind.paramKind(document); k != nil {
			paramKind = new(schema.FromAPIVersionAndKind(k.APIVersion, k.Kind))
		}
		policy.Evaluator, policy.compileErr = compile(document)
	case len(policy.matcher.rules) == 0:
		policy = nil // without rules, it would fail on every request
	}
	return policy, paramKind, err
}

// refreshBindings returns the bindings by the names of their policies.
func (r *resources[P, B, E]) refreshBindings() (map[string][]*Binding, error) {
	bindings, err := r.bindings.List("")
	if err != nil {
		return nil, err
	}
	known := make(map[string]*boundBinding)
	byPolicy := make(map[string][]*Binding)
	for _, object := range bindings {
		b := r.bound[object.GetName()]
		if b == nil || b.object != object {
			b = &boundBinding{object, r.newBinding(object)}
		}
		known[object.GetName()] = b
		byPolicy[b.binding.policy] = append(byPolicy[b.binding.policy], b.binding)
	}
	r.bound = known
	return byPolicy, nil
}

// newBinding returns a binding. An invalid binding, which was written while fastadmit did not
// run, fails on each request that its policy matches.
func (r *resources[P, B, E]) newBinding(object *cluster.JSON) *Binding {
	document := r.kind.newBinding()
	err := customresource.Decode(object, document)
	checked := r.kind.checkBinding(document).ToAggregate()
	b, matcherErr := newBinding(document)
	switch {
	case err != nil:
		b.err = err
	case checked != nil:
		b.err = checked
	default:
		b.err = matcherErr
	}
	b.Name, b.revision = object.GetName(), fmt.Sprint(object.GetUID(), object.GetGeneration())
	return b
}

// names returns the names of the policies, sorted.
func (r *resources[P, B, E]) names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.compiled))
}
