package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/customresource"
)

// A Source has the policies that a plugin evaluates: those of static manifests and, if the
// configuration enables them, the current custom resources and the policies of other engines. A binding in a manifest binds
// only policies in manifests, and a custom resource binds only custom resources. Several
// goroutines may use a Source at the same time.
type Source[P, B metav1.Object, E any] struct {
	// Cluster gives the policies access to the cluster.
	Cluster Cluster

	kind    *Kind[P, B]
	compile Compile[P, E]
	metrics *sourceMetrics
	static  Set[E]
	// exceptions is nil if there are none.
	exceptions *Exceptions
	resources  *resources[P, B, E]      // nil without custom resources
	foreign    *foreign[P, B, E]        // nil without policies of other engines
	follower   *customresource.Follower // of both, nil without them
	mu         sync.Mutex               // held while custom resources are refreshed

	configured bool // the plugin has a configuration file
	all        atomic.Pointer[Index[E]]
}

// NewSource returns the Source for the setup of a plugin. compile compiles the expressions
// of one policy. If it returns an error, its result is used all the same for a custom
// resource, and fails when it is evaluated. The error of NewSource describes errors in the
// configuration and in the manifests.
func NewSource[P, B metav1.Object, E any](kind *Kind[P, B], setup admission.Setup, compile Compile[P, E]) (*Source[P, B, E], error) {
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
		if p.reads != nil {
			p.reads = givenReads(setup.Params)
		}
	}
	if err := s.except(documents, config, &setup); err != nil {
		return nil, err
	}
	s.follow(config, setup.Cluster)
	return s, nil
}

// except compiles the exceptions in manifests, and makes what follows the others.
func (s *Source[P, B, E]) except(documents *Documents[P, B], config *Config, setup *admission.Setup) error {
	var all []*exception
	var errs []error
	for _, document := range documents.exceptions {
		e, wrong := compileException(document, setup)
		for _, err := range wrong {
			errs = append(errs, documents.From(document, err))
		}
		all = append(all, e)
	}
	follows := config.CustomResources && s.kind.hasExceptions
	if errs != nil || all == nil && !follows {
		return errors.Join(errs...)
	}
	s.exceptions = newExceptions(&s.Cluster, setup.Cluster)
	s.exceptions.static = all
	if follows {
		s.exceptions.follow(setup, func(ctx context.Context) error {
			_, err := s.known(ctx)
			return err
		})
	}
	s.exceptions.use(nil)
	return nil
}

// follow makes what the configuration asks to follow.
func (s *Source[P, B, E]) follow(config *Config, view *cluster.View) {
	if !config.CustomResources && len(config.Read) == 0 {
		s.use(nil)
		return
	}
	s.follower = new(customresource.Follower)
	if config.CustomResources {
		s.resources = newResources(s.kind, view, newClusterParams(cluster.DynamicIn(view)), s.compile)
		if s.exceptions != nil {
			s.resources.exceptions = s.exceptions.resources
		}
		s.follower = s.resources.newFollower()
	}
	if len(config.Read) > 0 {
		s.foreign = newForeign(s.kind, config, view, s.compile)
		for _, group := range s.foreign.groups {
			s.follower.Resources = append(s.follower.Resources, group)
		}
		s.follower.Background = append(s.follower.Background, s.foreign.reports.run)
	}
	if view.IsReadOnly() {
		s.follower.Background = nil // it writes statuses, PolicyReplicas and Events
	}
	s.follower.Refresh, s.follower.Rules = s.refresh, s.rules
}

// use sets the policies that are evaluated from now on: the static ones, then those of custom
// resources.
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
	s.all.Store(newIndex(all))
	if s.exceptions != nil {
		s.exceptions.usePolicies(names)
	}
}

// known returns the policies. If the custom
// resources are not listed yet, it waits for them; if ctx ends before, that is the error.
func (s *Source[P, B, E]) known(ctx context.Context) (*Index[E], error) {
	if all := s.all.Load(); all != nil {
		return all, nil
	}
	if err := s.follower.Await(ctx); err != nil {
		return nil, fmt.Errorf("the policies are not known yet: %w", err)
	}
	err := s.take(context.Background()) // this review comes before the first refresh of run
	if all := s.all.Load(); all != nil {
		return all, nil
	}
	return nil, err
}

// refresh compiles the custom resources that changed.
func (s *Source[P, B, E]) refresh(ctx context.Context) { _ = s.take(ctx) }

// take is refresh with the error: the policies stay as they are if not all are known.
func (s *Source[P, B, E]) take(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var set Set[E]
	if r := s.resources; r != nil {
		r.mu.Lock()
		own, err := r.refresh(ctx)
		r.mu.Unlock()
		if err != nil {
			return err
		}
		set = own
	}
	if s.exceptions != nil && s.exceptions.resources != nil {
		if err := s.exceptions.refresh(); err != nil {
			return err
		}
	}
	if s.foreign != nil {
		set = append(set, s.foreign.refresh(ctx, time.Now())...)
	}
	s.use(set)
	return nil
}

// Handler returns the handler of the plugin without the functions Admit and Validate.
func (s *Source[P, B, E]) Handler() (h admission.Handler) {
	if s.configured {
		h.Rules = s.rules
	}
	if s.follower != nil {
		h.Run = s.run
	}
	if s.exceptions != nil {
		h.Exceptions = s.exceptions
	}
	return h
}

// rules returns the rules of the policies that have bindings. With custom resources, a rule
// also selects these, to be checked; before they are known, the rules select everything.
func (s *Source[P, B, E]) rules() (rules []admission.Rule) {
	if s.follower != nil && !s.follower.IsFollowing() {
		return s.kind.narrowed([]admission.Rule{admission.Any()})
	}
	if s.resources != nil {
		rules = append(rules, customresource.Rule(s.kind.resources()...))
	}
	all := s.all.Load()
	if all == nil { // not all of them are known
		return s.kind.narrowed([]admission.Rule{admission.Any()})
	}
	for _, p := range all.all {
		if len(p.bindings()) > 0 {
			rules = append(rules, s.kind.narrowed(p.matcher.Rules())...)
		}
	}
	return rules
}

// resources returns the kinds of custom resources.
func (k *Kind[P, B]) resources() []cluster.KindOf[*cluster.JSON] {
	all := []cluster.KindOf[*cluster.JSON]{k.policies, k.bindings}
	if k.hasExceptions {
		all = append(all, cluster.PolicyExceptions)
	}
	return all
}

// narrowed returns the rules with the operations of the kind in place of "*". Policies of a
// kind that is not evaluated on some operations cannot name these in their rules.
func (k *Kind[P, B]) narrowed(rules []admission.Rule) []admission.Rule {
	for i := range rules {
		if k.operations != nil && slices.Contains(rules[i].Operations, admission.AnyOperation) {
			rules[i].Operations = k.operations
		}
	}
	return rules
}

// run follows the custom resources until ctx ends: it compiles those that change, and writes
// their status. See admission.Handler.
func (s *Source[P, B, E]) run(ctx context.Context, rulesChanged func()) {
	defer func() { // stops watching the kinds of parameters
		if s.resources != nil {
			s.resources.params.use(context.Background(), nil)
		}
		if s.foreign != nil {
			s.foreign.params.use(context.Background(), nil)
		}
	}()
	s.follower.Run(ctx, rulesChanged)
}

// Begin returns the policies to evaluate on a review and initializes d. If there are none,
// the result is the result of the plugin. Begin waits until the custom resources are
// known; if ctx ends before, the plugin fails. Begin also checks custom resources of
// policies.fastadmit.io and denies invalid ones.
func (s *Source[P, B, E]) Begin(ctx context.Context, d *Dispatch, review *codec.Review) (*Index[E], admission.Result) {
	resource := review.Resource()
	if resource.Group == cluster.PolicyGroup {
		return nil, s.check(review)
	}
	if IsExcluded(resource) {
		return nil, admission.Unchecked(admission.NotSelected)
	}
	policies, err := s.known(ctx)
	if err != nil {
		return nil, admission.Errored(err)
	}
	if len(policies.all) == 0 {
		return nil, admission.Unchecked(admission.NotSelected)
	}
	d.Begin(ctx, review, &s.Cluster)
	if s.exceptions != nil {
		d.exceptions = s.exceptions.all.Load()
	}
	return policies, admission.Allowed()
}
