package policies

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kubernetes/pkg/kubeapiserver/admission/exclusion"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// MutatingDocuments are MutatingAdmissionPolicies with their bindings.
type MutatingDocuments struct {
	Policies []admissionregistrationv1.MutatingAdmissionPolicy
	Bindings []admissionregistrationv1.MutatingAdmissionPolicyBinding
}

// UpstreamMutating evaluates MutatingAdmissionPolicies as kube-apiserver does, except
// that nothing sets defaults.
type UpstreamMutating struct {
	dispatcher generic.Dispatcher[mutating.PolicyHook]
	hooks      []mutating.PolicyHook
	plugin     *mutating.Plugin // for the operations that it handles
}

// NewUpstreamMutating compiles documents, which have the API's defaults, for a cluster with these
// namespaces. It merges with client-go's schemas, because those in Kubernetes' tests are of an
// older release.
func NewUpstreamMutating(documents *MutatingDocuments, authorizer authorizer.UnconditionalAuthorizer,
	namespaces ...*corev1.Namespace) (*UpstreamMutating, error) {
	return newUpstreamMutating(documents, false, authorizer, namespaces)
}

// NewUntypedMutating is NewUpstreamMutating, except that expressions do not see the Go types of built-in kinds, as
// before Kubernetes 1.37.
func NewUntypedMutating(documents *MutatingDocuments, authorizer authorizer.UnconditionalAuthorizer,
	namespaces ...*corev1.Namespace) (*UpstreamMutating, error) {
	return newUpstreamMutating(documents, true, authorizer, namespaces)
}

func newUpstreamMutating(documents *MutatingDocuments, untyped bool, authorizer authorizer.UnconditionalAuthorizer,
	namespaces []*corev1.Namespace) (*UpstreamMutating, error) {
	matcher, err := newMatcher(namespaces)
	if err != nil {
		return nil, err
	}
	schemas := patch.NewTypeConverterManager(deducing{applyconfigurations.NewTypeConverter(scheme.Scheme)}, nil)
	plugin, err := mutating.NewPlugin(nil)
	if err != nil {
		return nil, err
	}
	u := &UpstreamMutating{dispatcher: mutating.NewDispatcher(authorizer, matcher, schemas), plugin: plugin}
	for i := range documents.Policies {
		policy := &documents.Policies[i]
		evaluator, err := compileMutating(policy, untyped)
		if err != nil {
			return nil, err
		}
		hook := mutating.PolicyHook{Policy: policy, Evaluator: evaluator}
		for j := range documents.Bindings {
			if documents.Bindings[j].Spec.PolicyName == policy.Name {
				hook.Bindings = append(hook.Bindings, &documents.Bindings[j])
			}
		}
		u.hooks = append(u.hooks, hook)
	}
	return u, nil
}

// compileMutating does what compilePolicy does upstream, which is not exported.
func compileMutating(policy *mutating.Policy, untyped bool) (e mutating.PolicyEvaluator, err error) {
	all := plugincel.OptionalVariableDeclarations{HasAuthorizer: true}
	compiler, err := newCompiler(untyped)
	if err != nil {
		return e, err
	}
	e.CompositedCompiler = compiler
	spec := &policy.Spec
	for _, v := range spec.Variables {
		compiler.CompileAndStoreVariable(&validating.Variable{Name: v.Name, Expression: v.Expression}, all, environment.StoredExpressions)
	}
	if len(spec.MatchConditions) > 0 {
		var conditions []plugincel.ExpressionAccessor
		for i := range spec.MatchConditions {
			conditions = append(conditions, (*matchconditions.MatchCondition)(&spec.MatchConditions[i]))
		}
		e.Matcher = matchconditions.NewMatcher(compiler.CompileCondition(conditions, all, environment.StoredExpressions),
			spec.FailurePolicy, "policy", "validate", policy.Name)
	}
	all.HasPatchTypes = true
	for _, m := range spec.Mutations {
		if m.JSONPatch != nil {
			compiled := compiler.CompileMutatingEvaluator(&patch.JSONPatchCondition{Expression: m.JSONPatch.Expression}, all,
				environment.StoredExpressions)
			e.Mutators = append(e.Mutators, patch.NewJSONPatcher(compiled))
			err = errors.Join(append(compiled.CompilationErrors(), err)...)
		} else {
			compiled := compiler.CompileMutatingEvaluator(&patch.ApplyConfigurationCondition{Expression: m.ApplyConfiguration.Expression},
				all, environment.StoredExpressions)
			e.Mutators = append(e.Mutators, patch.NewApplyConfigurationPatcher(compiled))
			err = errors.Join(append(compiled.CompilationErrors(), err)...)
		}
	}
	return e, err
}

// Answer evaluates the policies on a request. It also returns the object, as JSON of its Go type.
func (u *UpstreamMutating) Answer(request *admissionv1.AdmissionRequest) (*Answer, []byte, error) {
	attributes, err := attributesOf(request)
	if err != nil {
		return nil, nil, err
	}
	answer := &Answer{Annotations: map[string]string{}}
	denial := u.admit(attributes)
	if again := attributes.GetReinvocationContext(); denial == nil && again.ShouldReinvoke() {
		again.SetIsReinvoke()
		denial = u.admit(attributes)
	}
	if denial != nil {
		var withStatus apierrors.APIStatus
		if !errors.As(denial, &withStatus) {
			return nil, nil, fmt.Errorf("got a denial without a status: %w", denial)
		}
		answer.Denied = new(withStatus.Status())
	}
	object, err := json.Marshal(attributes.GetObject())
	return answer, object, err
}

func (u *UpstreamMutating) admit(a admission.Attributes) error {
	if !u.plugin.Handles(a.GetOperation()) { // as the chain does
		return nil
	}
	if slices.Contains(exclusion.Excluded(), a.GetResource().GroupResource()) { // as package generic does
		return nil
	}
	return u.dispatcher.Dispatch(context.Background(), a, typedObjects{admission.NewObjectInterfacesFromScheme(scheme.Scheme)}, u.hooks)
}

// deducing deduces the schema of custom resources.
type deducing struct{ managedfields.TypeConverter }

// ObjectToTyped implements managedfields.TypeConverter.
func (d deducing) ObjectToTyped(object runtime.Object, options ...typed.ValidationOptions) (*typed.TypedValue, error) {
	if !scheme.Scheme.Recognizes(object.GetObjectKind().GroupVersionKind()) {
		return managedfields.NewDeducedTypeConverter().ObjectToTyped(object, options...)
	}
	return d.TypeConverter.ObjectToTyped(object, options...)
}

// typedObjects also converts objects to their own type, as kube-apiserver's scheme does.
type typedObjects struct{ admission.ObjectInterfaces }

// GetObjectConvertor implements admission.ObjectInterfaces.
func (o typedObjects) GetObjectConvertor() runtime.ObjectConvertor {
	return convertor{o.ObjectInterfaces.GetObjectConvertor()}
}

type convertor struct{ runtime.ObjectConvertor }

// Convert implements runtime.ObjectConvertor.
func (c convertor) Convert(in, out, context any) error {
	daemonSet, ok := out.(*appsv1.DaemonSet)
	if !ok {
		return c.convert(in, out, context)
	}
	earlier, had := daemonSet.Annotations[appsv1.DeprecatedTemplateGeneration]
	err := c.convert(in, out, context)
	if _, has := daemonSet.Annotations[appsv1.DeprecatedTemplateGeneration]; had && !has && err == nil {
		// A field of the internal object, which stays without the annotation (pkg/apis/apps/v1/conversion.go).
		daemonSet.Annotations = maps.Clone(daemonSet.Annotations)
		metav1.SetMetaDataAnnotation(&daemonSet.ObjectMeta, appsv1.DeprecatedTemplateGeneration, earlier)
	}
	return err
}

func (c convertor) convert(in, out, context any) error {
	if from, ok := in.(*unstructured.Unstructured); ok {
		if custom, ok := out.(*unstructured.Unstructured); ok {
			custom.Object = from.Object
			return nil
		}
		return runtime.DefaultUnstructuredConverter.FromUnstructured(from.Object, out)
	}
	if reflect.TypeOf(in) != reflect.TypeOf(out) {
		return c.ObjectConvertor.Convert(in, out, context)
	}
	reflect.ValueOf(out).Elem().Set(reflect.ValueOf(in).Elem())
	return nil
}
