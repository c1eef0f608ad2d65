package policy

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
)

// A Source has the policies that a plugin evaluates: those of static manifests and, if the
// configuration enables them, the current custom resources. A binding in a manifest binds
// only policies in manifests, and a custom resource binds only custom resources. Several
// goroutines may use a Source at the same time.
type Source[P, B metav1.Object, E any] struct {
	// Cluster gives the policies access to the cluster.
	Cluster Cluster

	kind      *Kind[P, B]
	compile   func(P) (E, error)
	metrics   *sourceMetrics
	static    Set[E]
	resources *resources[P, B, E] // nil without custom resources

	configured bool // something says where policies come from
	all        atomic.Pointer[Set[E]]
	follows    atomic.Bool // the custom resources, which are known
}

// NewSource returns the Source for the setup of a plugin. compile compiles the expressions
// of one policy. If it returns an error, its result is used all the same for a custom
// resource, and fails when it is evaluated. The error of NewSource describes errors in the
// configuration and in the manifests.
func NewSource[P, B metav1.Object, E any](kind *Kind[P, B], setup admission.Setup, compile func(P) (E, error)) (*Source[P, B, E], error) {
	config, err := kind.ReadConfig(setup.Config)
	if err != nil {
		return nil, err
	}
	documents, err := kind.Read(setup.Manifests)
	if err != nil {
		return nil, err
	}
	s := &Source[P, B, E]{
		kind: kind, compile: compile, configured: setup.Config != nil, metrics: newSourceMetrics(kind.Name, setup.Cluster.Metrics()),
		Cluster: Cluster{
			Namespaces: cluster.Namespaces.In(setup.Cluster), Access: cluster.AccessIn(setup.Cluster),
		},
	}
	if s.static, err = NewSet(documents, compile); err != nil {
		return nil, err
	}
	for _, p := range s.static {
		p.params = GivenParams(setup.Params)
	}
	if !config.CustomResources {
		s.use(nil)
		return s, nil
	}
	s.resources = newResources(kind, setup.Cluster, newClusterParams(cluster.DynamicIn(setup.Cluster)), compile)
	return s, nil
}

// use has the policies of custom resources evaluated from now on, behind the static
// ones.
func (s *Source[P, B, E]) use(custom Set[E]) {
	all := slices.Concat(s.static, custom)
	names := make([]string, len(all))
	for i, p := range all {
		names[i] = p.Name
	}
	s.metrics.use(names)
	for _, p := range all {
		p.metrics = s.metrics.of(p.Name)
	}
	s.all.Store(&all)
}

// known returns the policies in the order in which they are evaluated. Nobody is let
// through because the custom resources were not listed yet: it waits for them until ctx
// ends, which is the error.
func (s *Source[P, B, E]) known(ctx context.Context) (Set[E], error) {
	if all := s.all.Load(); all != nil {
		return *all, nil
	}
	for _, synced := range s.resources.synced() {
		select {
		case <-synced:
		case <-ctx.Done():
			return nil, fmt.Errorf("the policies are not known yet: %w", context.Cause(ctx))
		}
	}
	s.refresh(context.Background()) // the first review comes before Run did it
	return *s.all.Load(), nil
}

// refresh compiles what changed of the custom resources.
func (s *Source[P, B, E]) refresh(ctx context.Context) {
	r := s.resources
	r.mu.Lock()
	defer r.mu.Unlock()
	s.use(r.refresh(ctx))
}

// Handler returns the handler of the plugin without the functions Admit and Validate.
func (s *Source[P, B, E]) Handler() (h admission.Handler) {
	if s.configured {
		h.Rules = s.rules
	}
	if s.resources != nil {
		h.Run = s.run
	}
	return h
}

// rules returns the rules of the policies that have bindings: what others select need
// not be sent. With custom resources, these are sent too, to be checked; before they
// are followed, everything is.
func (s *Source[P, B, E]) rules() (rules []admission.Rule) {
	if s.resources != nil {
		if !s.follows.Load() {
			return s.kind.narrowed([]admission.Rule{admission.Any()})
		}
		rules = append(rules, admission.Rule{
			Operations: []codec.Operation{codec.Create, codec.Update}, Groups: []string{cluster.PolicyGroup}, Versions: []string{"*"},
			Resources: []string{s.kind.policies.Resource().Resource, s.kind.bindings.Resource().Resource}, Scope: "Cluster",
		})
	}
	for _, p := range *s.all.Load() {
		if len(p.bindings) > 0 {
			rules = append(rules, s.kind.narrowed(p.matcher.Rules())...)
		}
	}
	return rules
}

// narrowed returns the rules with the operations of the kind in place of "*": kinds that
// are not evaluated on some operations refuse rules that name these.
func (k *Kind[P, B]) narrowed(rules []admission.Rule) []admission.Rule {
	for i := range rules {
		if k.operations != nil && slices.Contains(rules[i].Operations, admission.AnyOperation) {
			rules[i].Operations = k.operations
		}
	}
	return rules
}

// run follows the custom resources until ctx ends: it compiles what changes, and
// writes what became of it into their status. See admission.Handler.
func (s *Source[P, B, E]) run(ctx context.Context, rulesChanged func()) {
	var last []admission.Rule
	s.resources.follow(ctx, func() {
		s.refresh(ctx)
		s.follows.Store(true)
		if now := s.rules(); !reflect.DeepEqual(now, last) {
			last = now
			rulesChanged()
		}
	})
}

// Begin returns the policies to evaluate on a review and initializes d. If there are none,
// the result is the result of the plugin. Begin waits until the custom resources are
// known; if ctx ends before, the plugin fails. Begin also checks custom resources of
// policies.fastadmit.io and denies invalid ones.
func (s *Source[P, B, E]) Begin(ctx context.Context, d *Dispatch, review *codec.Review) (Set[E], admission.Result) {
	resource := review.Resource()
	if resource.Group == cluster.PolicyGroup {
		return nil, s.check(review)
	}
	if IsExcluded(resource) {
		return nil, admission.Allowed()
	}
	policies, err := s.known(ctx)
	if err != nil {
		return nil, admission.Errored(err)
	}
	if len(policies) == 0 {
		return nil, admission.Allowed()
	}
	d.Begin(ctx, review, &s.Cluster)
	return policies, admission.Allowed()
}
