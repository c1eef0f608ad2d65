// Package policy reads admission policies and their bindings, and selects the policies to
// evaluate on a review. It reads manifests as kube-apiserver does (k8s.io/apiserver
// pkg/admission/plugin/policy/manifest/loader), and matches reviews as
// pkg/admission/plugin/policy/matching does. It also follows the custom resources of
// policies.fastadmit.io.
package policy

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/policy/documents"
)

// Documents contains the policies of one kind and their bindings, both sorted by name. The
// defaults of the API are set.
type Documents[P, B metav1.Object] struct {
	Policies []P
	Bindings []B

	exceptions []*ExceptionDocument // sorted by name

	from map[metav1.Object]*admission.File
}

// From wraps an error in a *admission.FileError with the file of a policy or a binding. It
// returns err unchanged if it is nil or the object is not from a file.
func (d *Documents[P, B]) From(object metav1.Object, err error) error {
	if file := d.from[object]; file != nil && err != nil {
		return &admission.FileError{File: file.Name, Err: err}
	}
	return err
}

type (
	// Validating contains ValidatingAdmissionPolicies and their bindings.
	Validating = Documents[*admissionregistrationv1.ValidatingAdmissionPolicy, *admissionregistrationv1.ValidatingAdmissionPolicyBinding]
	// Mutating contains MutatingAdmissionPolicies and their bindings.
	Mutating = Documents[*admissionregistrationv1.MutatingAdmissionPolicy, *admissionregistrationv1.MutatingAdmissionPolicyBinding]
)

const (
	validatingKind = "ValidatingAdmissionPolicy"
	mutatingKind   = "MutatingAdmissionPolicy"
	bindingSuffix  = "Binding"
)

// The versions of documents that are read. The fields are the same in all.
var apiVersions = []string{
	"admissionregistration.k8s.io/v1", "admissionregistration.k8s.io/v1beta1", "admissionregistration.k8s.io/v1alpha1",
}

// A Kind is one of the two kinds of policies, ValidatingKind or MutatingKind.
type Kind[P, B metav1.Object] struct {
	Name string // the kind of the policies

	hasExceptions bool // the plugin reads PolicyExceptions

	policies, bindings cluster.KindOf[*cluster.JSON] // as custom resources

	newPolicy    func() P
	newBinding   func() B
	checkPolicy  func(P) field.ErrorList
	checkBinding func(B) field.ErrorList
	paramKind    func(P) *admissionregistrationv1.ParamKind
	bound        func(B) (policy string, ref *admissionregistrationv1.ParamRef)

	// operations are the operations of requests for which the policies are evaluated, nil
	// for all.
	operations []codec.Operation

	// checkTypes compares the expressions with the schemas of the cluster. It is nil for a
	// kind whose status has no type checking.
	checkTypes func(context.Context, *typeChecker, P) ([]admissionregistrationv1.ExpressionWarning, error)
}

// ValidatingKind is the kind ValidatingAdmissionPolicy.
var ValidatingKind = &Kind[*admissionregistrationv1.ValidatingAdmissionPolicy, *admissionregistrationv1.ValidatingAdmissionPolicyBinding]{
	Name:          validatingKind,
	hasExceptions: true,
	policies:      cluster.ValidatingAdmissionPolicies, bindings: cluster.ValidatingAdmissionPolicyBindings,
	newPolicy: func() *admissionregistrationv1.ValidatingAdmissionPolicy {
		return new(admissionregistrationv1.ValidatingAdmissionPolicy)
	},
	newBinding: func() *admissionregistrationv1.ValidatingAdmissionPolicyBinding {
		return new(admissionregistrationv1.ValidatingAdmissionPolicyBinding)
	},
	checkPolicy: CheckValidating, checkBinding: CheckValidatingBinding,
	paramKind: func(p *admissionregistrationv1.ValidatingAdmissionPolicy) *admissionregistrationv1.ParamKind {
		return p.Spec.ParamKind
	},
	bound: func(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) (string, *admissionregistrationv1.ParamRef) {
		return b.Spec.PolicyName, b.Spec.ParamRef
	},
	checkTypes: func(ctx context.Context, c *typeChecker, p *admissionregistrationv1.ValidatingAdmissionPolicy) ([]admissionregistrationv1.ExpressionWarning, error) {
		return c.checkTypes(ctx, p)
	},
}

// MutatingKind is the kind MutatingAdmissionPolicy.
var MutatingKind = &Kind[*admissionregistrationv1.MutatingAdmissionPolicy, *admissionregistrationv1.MutatingAdmissionPolicyBinding]{
	Name:       mutatingKind,
	operations: []codec.Operation{codec.Create, codec.Update, codec.Connect}, // upstream's mutating/plugin.go
	policies:   cluster.MutatingAdmissionPolicies, bindings: cluster.MutatingAdmissionPolicyBindings,
	newPolicy: func() *admissionregistrationv1.MutatingAdmissionPolicy {
		return new(admissionregistrationv1.MutatingAdmissionPolicy)
	},
	newBinding: func() *admissionregistrationv1.MutatingAdmissionPolicyBinding {
		return new(admissionregistrationv1.MutatingAdmissionPolicyBinding)
	},
	checkPolicy: CheckMutating, checkBinding: CheckMutatingBinding,
	paramKind: func(p *admissionregistrationv1.MutatingAdmissionPolicy) *admissionregistrationv1.ParamKind {
		return p.Spec.ParamKind
	},
	bound: func(b *admissionregistrationv1.MutatingAdmissionPolicyBinding) (string, *admissionregistrationv1.ParamRef) {
		return b.Spec.PolicyName, b.Spec.ParamRef
	},
}

// A reader reads documents of a kind of policies.
type reader[P, B metav1.Object] struct {
	Documents[P, B]
	*Kind[P, B]
}

// Read reads policies and bindings from manifests. It returns an error for everything that
// kube-apiserver rejects in a folder of manifests: unknown fields, other kinds, duplicate
// names, bindings of policies that the manifests do not contain, parameters, and objects
// that are invalid in the API. Policies of other engines are translated. Unlike in kube-apiserver, names need not end with
// ".static.k8s.io". Files with FromAPI may have parameters and bindings of other policies.
//
// The error joins all errors. An error in one file is a *admission.FileError.
func (k *Kind[P, B]) Read(manifests []admission.File) (*Documents[P, B], error) {
	r := reader[P, B]{Kind: k}
	return &r.Documents, r.readAll(manifests)
}

// ReadValidating calls ValidatingKind.Read.
func ReadValidating(manifests []admission.File) (*Validating, error) {
	return ValidatingKind.Read(manifests)
}

// ReadMutating calls MutatingKind.Read.
func ReadMutating(manifests []admission.File) (*Mutating, error) { return MutatingKind.Read(manifests) }

func (r *reader[P, B]) readAll(manifests []admission.File) error {
	r.from = make(map[metav1.Object]*admission.File)
	read := documents.Reader{APIVersions: apiVersions, Kinds: []string{r.Name, r.Name + bindingSuffix}, Add: r.add}
	if r.hasExceptions {
		read.Own = map[string]string{ExceptionKind: ExceptionVersion}
	}
	manifests, errs := translated(manifests, r.Name)
	errs = append(errs, read.Read(manifests)...)
	slices.SortStableFunc(r.Policies, func(a, b P) int { return strings.Compare(a.GetName(), b.GetName()) })
	slices.SortStableFunc(r.Bindings, func(a, b B) int { return strings.Compare(a.GetName(), b.GetName()) })
	slices.SortStableFunc(r.exceptions, func(a, b *ExceptionDocument) int { return strings.Compare(a.Name, b.Name) })
	if len(errs) == 0 {
		errs = r.checkNames()
	}
	return utilerrors.NewAggregate(errs)
}

// checkNames refuses duplicate names, and bindings of policies that do not exist.
func (r *reader[P, B]) checkNames() (errs []error) {
	known := make(map[string]bool)
	for i, policy := range r.Policies {
		known[policy.GetName()] = true
		if i > 0 {
			errs = r.checkDuplicate(errs, "a policy", r.Policies[i-1], policy)
		}
	}
	for i, binding := range r.Bindings {
		if i > 0 {
			errs = r.checkDuplicate(errs, "a binding", r.Bindings[i-1], binding)
		}
		if policy, _ := r.bound(binding); !known[policy] && !r.from[binding].FromAPI {
			errs = append(errs, r.From(binding,
				fmt.Errorf("binding %q references policy %q which does not exist in the manifest directory", binding.GetName(), policy)))
		}
	}
	for i, exception := range r.exceptions {
		if i > 0 {
			errs = r.checkDuplicate(errs, "an exception", r.exceptions[i-1], exception)
		}
	}
	return errs
}

// checkDuplicate adds an error if two objects that are sorted by name have the same one.
func (r *reader[P, B]) checkDuplicate(errs []error, what string, before, object metav1.Object) []error {
	if before.GetName() != object.GetName() {
		return errs
	}
	err := fmt.Errorf("duplicate name %q of %s", object.GetName(), what)
	if other := r.from[before]; other != r.from[object] {
		err = fmt.Errorf("%w: %s has one, too", err, other.Name)
	}
	return append(errs, r.From(object, err))
}

// add adds a document.
func (r *reader[P, B]) add(file *admission.File, kind string, content []byte) []error {
	switch kind {
	case r.Name:
		return r.addPolicy(file, content)
	case ExceptionKind:
		return r.addException(file, content)
	}
	return r.addBinding(file, content)
}

// addException adds an exception. NewSource reports what is wrong in it.
func (r *reader[P, B]) addException(file *admission.File, content []byte) []error {
	exception := new(ExceptionDocument)
	if errs := documents.Decode(content, exception); errs != nil {
		return errs
	}
	r.exceptions, r.from[exception] = append(r.exceptions, exception), file
	return nil
}

func (r *reader[P, B]) addPolicy(file *admission.File, content []byte) []error {
	policy := r.newPolicy()
	if errs := documents.Decode(content, policy); errs != nil {
		return errs
	}
	r.Policies, r.from[policy] = append(r.Policies, policy), file
	errs := documents.Named(r.Name, policy.GetName(), r.checkPolicy(policy))
	if r.paramKind(policy) != nil && !file.FromAPI {
		errs = append(errs, fmt.Errorf("%s %q: spec.paramKind is not supported for static manifests", r.Name, policy.GetName()))
	}
	return errs
}

func (r *reader[P, B]) addBinding(file *admission.File, content []byte) []error {
	binding := r.newBinding()
	if errs := documents.Decode(content, binding); errs != nil {
		return errs
	}
	r.Bindings, r.from[binding] = append(r.Bindings, binding), file
	name := binding.GetName()
	errs := documents.Named(r.Name+bindingSuffix, name, r.checkBinding(binding))
	if _, ref := r.bound(binding); ref != nil && !file.FromAPI {
		errs = append(errs, fmt.Errorf("binding %q: spec.paramRef is not supported for static manifests", name))
	}
	return errs
}
