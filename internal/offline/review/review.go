// Package review runs plugins on objects from files or from a cluster, without requests of
// kube-apiserver. It creates the AdmissionReviews for the objects, and for the objects that
// controllers would create for them. It also maintains the cluster that the plugins see.
package review

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/diff"
	"github.com/fastadmit/fastadmit/internal/discovery"
	"github.com/fastadmit/fastadmit/internal/offline/defaults"
	"github.com/fastadmit/fastadmit/internal/offline/manifest"
	"github.com/fastadmit/fastadmit/internal/offline/report"
	"github.com/fastadmit/fastadmit/internal/workload"
)

// User is the user of a request, with the fields of authentication.k8s.io/v1 UserInfo.
type User struct {
	Username string              `json:"username,omitempty"`
	UID      string              `json:"uid,omitempty"`
	Groups   []string            `json:"groups,omitempty"`
	Extra    map[string][]string `json:"extra,omitempty"`
}

// Options configure reviews.
type Options struct {
	Chain     *admission.Chain
	Resources *discovery.Table
	// Cluster is the cluster that the plugins of Chain see. It may be nil if they need
	// none.
	Cluster *cluster.State

	Namespace string // of objects without a namespace
	User      User   // of all requests, except those of controllers
	// Operation is the operation of all requests. Empty means UPDATE for objects that are
	// in Old, and CREATE for others.
	Operation codec.Operation
	// Old are the objects before an UPDATE. If Old is empty, the objects are updated
	// without a change. Otherwise, an UPDATE of an object that is not in Old is an error.
	Old []manifest.Item
	// State are objects of the cluster, in addition to those of Cluster. Objects of kinds
	// that plugins do not read are ignored.
	State []manifest.Item
	// Definitions are the CustomResourceDefinitions of the cluster. Those in State and among the items replace them.
	Definitions []manifest.Item
	DryRun      bool
	// Release is the release of Kubernetes that sets the defaults of objects. NoDefaults reviews objects
	// without defaults.
	Release    admission.Version
	NoDefaults bool

	// WorkloadPods enables reviews of the objects that controllers create for objects.
	// PodTemplatePaths are for kinds that are not built into Kubernetes.
	WorkloadPods     bool
	PodTemplatePaths workload.Paths
	// SkipUnknown are the unknown kinds that are skipped. SkipAllUnknown stands for all, and for
	// documents that are not Kubernetes objects.
	SkipUnknown []string

	// TrustOwners lets Live review an owned object as its controller only.
	TrustOwners bool

	// UnknownFields makes fields that a kind does not have warnings, as those of kube-apiserver, and objects broken that it refuses
	// because of their type or their CustomResourceDefinition.
	UnknownFields bool

	KeepObjects, KeepResponse bool // set Before and After, and Response, of the results
	Explain                   bool // set Explanation of the results

	// Registration, if it is set, says which objects are not sent to fastadmit. They are allowed and unchecked.
	Registration *Registration
	// Selects reports whether kube-apiserver would send a review. Others are skipped. Nil
	// selects all reviews.
	Selects func(ctx context.Context, review *codec.Review) (bool, error)
}

// SkipAllUnknown is an element of Options.SkipUnknown.
const SkipAllUnknown = "*"

// A session is one run.
type session struct {
	*Options
	defaults *defaults.Defaults
	old      map[identity]*manifest.Object
	putter   *cluster.Putter // nil if no plugin reads from the cluster
	results  []*report.Result
	heads    manifest.Positions // of fields that say which objects the input has
}

func newSession(o *Options) *session { return &session{Options: o, defaults: defaults.New(o.Release)} }

// identity identifies an object in all its versions.
type identity struct {
	schema.GroupKind
	namespace, name string
}

// target is an object of the input with its resource.
type target struct {
	*manifest.Object
	resource  discovery.Resource
	namespace string // of the request
	rank      int
	isState   bool // plugins read such objects from the cluster
	result    **report.Result
}

// Run reviews the objects in items and calls emit with the result of each, in their order.
// Before that, it calls emit for errors in State and Old. It reviews objects that plugins
// read from the cluster first, such as Namespaces, and adds them to the cluster. Run
// returns the first error of emit.
func Run(ctx context.Context, o Options, items []manifest.Item, emit func(*report.Result) error) error {
	s := newSession(&o)
	s.results = make([]*report.Result, len(items))
	if o.Cluster != nil {
		s.putter = o.Cluster.NewPutter()
	}
	for _, given := range [][]manifest.Item{o.Definitions, o.State, items} {
		s.define(given)
	}
	faults := append(s.readState(), s.readOld()...)
	for i := range o.Definitions {
		if fault := o.Definitions[i].Fault; fault != nil {
			faults = append(faults, broken(fault.Source, fault.Err))
		}
	}
	s.review(ctx, s.targets(items))
	for _, result := range slices.Concat(faults, s.results) {
		if err := emit(result); err != nil {
			return err
		}
	}
	return nil
}

// define reads the CustomResourceDefinitions among items.
func (s *session) define(items []manifest.Item) {
	for i := range items {
		if item := &items[i]; item.Fault == nil && discovery.IsCRD(item.GroupVersionKind()) {
			err := s.Resources.AddCRD(item.JSON)
			if err == nil {
				err = s.defaults.Define(item.JSON)
			}
			if err != nil {
				item.Fault = &manifest.Error{Source: item.Source, Err: err}
			}
		}
	}
}

// Body returns the AdmissionReview for an object from a file, as Run makes it for an object that is
// not in Old.
func (o *Options) Body(item *manifest.Item) ([]byte, error) {
	s := newSession(o)
	t, result := s.target(item)
	if result != nil {
		return nil, errors.New(result.Message)
	}
	if t.resource.Resource == "" {
		return item.JSON, nil // it is one
	}
	text, err := s.prepared(t, t.JSON)
	if err != nil {
		return nil, err
	}
	old := []byte(nil)
	q := &request{
		Kind: metav1.GroupVersionKind(t.GroupVersionKind()), Resource: metav1.GroupVersionResource(t.resource.GroupVersionResource),
		Name: t.Metadata.Name, Namespace: t.namespace, Operation: s.operation(t), UserInfo: &o.User, DryRun: o.DryRun,
	}
	switch q.Operation {
	case codec.Update:
		old = text
	case codec.Delete:
		text, old = nil, text
	}
	return q.body(text, old)
}

// readState adds State to the cluster. It returns the objects that cannot be read.
func (s *session) readState() (faults []*report.Result) {
	for i := range s.State {
		item := &s.State[i]
		t, result := s.target(item)
		if result != nil {
			if item.Fault != nil {
				faults = append(faults, result)
			}
			continue // the kind is unknown, so no plugin reads it
		}
		if err := s.put(t, item.JSON); err != nil {
			faults = append(faults, broken(item.Source, err))
		}
	}
	return faults
}

// readOld adds Old to the cluster. It returns the objects that cannot be read.
func (s *session) readOld() (faults []*report.Result) {
	s.old = make(map[identity]*manifest.Object)
	for i := range s.Old {
		item := &s.Old[i]
		t, result := s.target(item)
		if result != nil {
			faults = append(faults, result)
			continue
		}
		s.old[t.identity()] = &item.Object
		if err := s.put(t, item.JSON); err != nil {
			faults = append(faults, broken(item.Source, err))
		}
	}
	return faults
}

func (t *target) identity() identity {
	return identity{t.GroupVersionKind().GroupKind(), t.namespace, t.Metadata.Name}
}

func broken(source manifest.Source, err error) *report.Result {
	return &report.Result{File: source.File, Line: source.Line, Decision: report.Broken, Message: err.Error()}
}

// target returns the target for an item, or the result to report if the item has no
// object or an unknown kind.
func (s *session) target(item *manifest.Item) (*target, *report.Result) {
	var err error
	t := &target{Object: &item.Object}
	isReview := item.GroupVersionKind().GroupKind() == schema.GroupKind{Group: "admission.k8s.io", Kind: "AdmissionReview"}
	if item.Fault != nil {
		err = item.Fault.Err
	} else if !isReview {
		t.resource, err = s.Resources.Find(item.GroupVersionKind())
		if program := manifest.ReadByProgram(item.GroupVersionKind()); err != nil && program != nil {
			err = program
		}
		if err != nil && manifest.IsKustomization(item.GroupVersionKind()) {
			err = manifest.NewKustomizationError(item.File)
		}
	} else if program := manifest.ReviewOfTest(item.JSON); program != nil {
		err = program
	}
	if err != nil {
		source := item.Source
		if item.Fault != nil {
			source = item.Fault.Source // the line of the fault, not of the document
			if head, ok := errors.AsType[*manifest.HeadError](item.Fault); ok {
				source.Line = s.heads.LineOf(&item.Object, head.Path)
			}
		}
		result := broken(source, err)
		result.APIVersion, result.Kind, result.Name = item.APIVersion, item.Kind, item.Metadata.Name
		unknown, ok := errors.AsType[*discovery.UnknownError](err)
		result.UnknownKind = ok && unknown.MayBeCustom()
		if s.skips(item, err) {
			result.Decision, result.UnknownKind = report.Skipped, false
			_, result.Unrendered = errors.AsType[*manifest.UnrenderedError](err)
		}
		return nil, result
	}
	switch {
	case t.resource.GroupResource() == schema.GroupResource{Resource: "namespaces"}:
		t.namespace = item.Metadata.Name // as kube-apiserver has it
	case t.resource.Namespaced:
		t.namespace = cmp.Or(item.Metadata.Namespace, s.Namespace)
	}
	return t, nil
}

// targets returns the objects that can be reviewed, in the order of their reviews.
func (s *session) targets(items []manifest.Item) []*target {
	var targets []*target
	for i := range items {
		t, result := s.target(&items[i])
		if result != nil {
			s.results[i] = result
			continue
		}
		t.result = &s.results[i]
		targets = append(targets, t)
	}
	s.rank(targets)
	slices.SortStableFunc(targets, func(a, b *target) int { return a.rank - b.rank })
	return targets
}

// The ranks of objects. Objects that others need come first.
const (
	rankNamespace = iota
	rankClusterScoped
	rankNamespaced
	rankOthers
)

// rank sets the ranks of the targets: Namespaces are first, then the other kinds that
// plugins read from the cluster. Pods are not among them: only recorded requests, such as
// exec, read Pods.
func (s *session) rank(targets []*target) {
	state := make(map[schema.GroupVersionResource]bool)
	if s.putter != nil {
		for _, kind := range s.Cluster.Kinds() {
			state[kind.GroupVersionResource()] = true
		}
	}
	for _, t := range targets {
		resource := t.resource.GroupVersionResource
		t.isState = state[resource]
		switch {
		case !t.isState || resource == cluster.Pods.GroupVersionResource():
			t.rank = rankOthers
		case resource == cluster.Namespaces.GroupVersionResource():
			t.rank = rankNamespace
		case !t.resource.Namespaced:
			t.rank = rankClusterScoped
		default:
			t.rank = rankNamespaced
		}
	}
}

// putState lets plugins see objects before they are reviewed: those that are
// about to be created, or those that are there already.
func (s *session) putState(targets []*target, created bool) {
	for _, t := range targets {
		if t.isState && s.old[t.identity()] == nil && (s.operation(t) == codec.Create) == created {
			// A fault of the object is found when it is reviewed.
			_ = s.put(t, t.JSON)
		}
	}
}

// review reviews the targets: those of the cluster's state one after the other,
// as each may need what came before, and all others at the same time, unless a
// plugin remembers what it has seen.
func (s *session) review(ctx context.Context, targets []*target) {
	s.putState(targets, false)
	first := slices.IndexFunc(targets, func(t *target) bool { return t.rank == rankOthers })
	if first < 0 {
		first = len(targets)
	}
	sequential := s.newReviewer()
	for _, t := range targets[:first] {
		sequential.target(ctx, t)
	}
	rest := targets[first:]
	s.putState(rest, true)
	if s.remembers() {
		for _, t := range rest {
			sequential.target(ctx, t)
		}
		return
	}
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(len(rest), runtime.GOMAXPROCS(0)) {
		workers.Go(func() {
			r := s.newReviewer()
			for i := int(next.Add(1)) - 1; i < len(rest); i = int(next.Add(1)) - 1 {
				r.target(ctx, rest[i])
			}
		})
	}
	workers.Wait()
}

// remembers reports whether the answer to a review may depend on earlier reviews.
func (s *session) remembers() bool {
	return !s.DryRun && slices.ContainsFunc(s.Chain.Plugins(), func(p *admission.Plugin) bool {
		return p.SideEffects == admissionregistrationv1.SideEffectClassNoneOnDryRun
	})
}

// operation returns the operation of the request for an object.
func (s *session) operation(t *target) codec.Operation {
	if s.Operation != "" {
		return s.Operation
	}
	if s.old[t.identity()] != nil {
		return codec.Update
	}
	return codec.Create
}

// prepared returns an object as kube-apiserver passes it to plugins: with its namespace
// and its defaults.
func (s *session) prepared(t *target, text []byte) ([]byte, error) {
	return s.prepare(t.GroupVersionKind(), t.resource.Namespaced, t.namespace, text)
}

func (s *session) prepare(gvk schema.GroupVersionKind, namespaced bool, namespace string, text []byte) ([]byte, error) {
	var object codec.Object
	object.Reset(text)
	switch given := object.Get("metadata", "namespace"); {
	case namespaced && given.String() == "":
		object.SetString(namespace, "metadata", "namespace")
	case !namespaced && given.Exists():
		object.Remove("metadata", "namespace")
	}
	if object.Err() == nil && object.Changes() > 0 {
		text = object.Root().AppendJSON(nil)
	}
	if s.NoDefaults {
		return text, nil
	}
	return s.defaults.Apply(gvk, text)
}

// setDefaults sets the defaults of an object that plugins changed, as kube-apiserver does before it validates the object.
func (s *session) setDefaults(object *codec.Object, kind schema.GroupVersionKind) error {
	if s.NoDefaults || kind.Empty() {
		return nil
	}
	text := object.Root().AppendJSON(nil)
	defaulted, err := s.defaults.Apply(kind, text)
	if err != nil {
		return err
	}
	return diff.Change(object, text, defaulted)
}

// put prepares an object and lets plugins see it in the cluster.
func (s *session) put(t *target, text []byte) error {
	text, err := s.prepared(t, text)
	if err != nil {
		return err
	}
	return s.putStored(t, text)
}

// putStored lets plugins see an object in the cluster. They see no PolicyException: who asks for a review does not
// decide about exceptions.
func (s *session) putStored(t *target, text []byte) error {
	if s.putter == nil || t.Metadata.Name == "" || t.resource.GroupVersionResource == cluster.PolicyExceptions.GroupVersionResource() {
		return nil
	}
	if _, err := s.putter.Put(text); err != nil {
		return fmt.Errorf("cannot be used as an object of the cluster: %w", err)
	}
	return nil
}
