// Package policies evaluates ValidatingAdmissionPolicies with kube-apiserver's own
// packages and with fastadmit's plugin, on the same reviews. Where the answers
// differ, fastadmit's is wrong.
package policies

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	listersv1 "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/kubeapiserver/admission/exclusion"

	"github.com/fastadmit/fastadmit/codec"
)

// Answer is either side's answer to a request.
type Answer struct {
	Denied      *metav1.Status
	Warnings    []string
	Annotations map[string]string
}

// Documents are policies with their bindings.
type Documents struct {
	Policies []admissionregistrationv1.ValidatingAdmissionPolicy
	Bindings []admissionregistrationv1.ValidatingAdmissionPolicyBinding
}

// Upstream evaluates policies as kube-apiserver does.
type Upstream struct {
	dispatcher generic.Dispatcher[validating.PolicyHook]
	hooks      []validating.PolicyHook
}

// NewUpstream compiles documents, which have the defaults of the API, for a cluster
// with these namespaces.
func NewUpstream(documents *Documents, authorizer authorizer.UnconditionalAuthorizer, namespaces ...*corev1.Namespace) (*Upstream, error) {
	return newUpstream(documents, false, authorizer, namespaces)
}

// NewUntyped is NewUpstream, except that expressions do not see the Go types of built-in kinds, as before Kubernetes 1.37.
func NewUntyped(documents *Documents, authorizer authorizer.UnconditionalAuthorizer, namespaces ...*corev1.Namespace) (*Upstream, error) {
	return newUpstream(documents, true, authorizer, namespaces)
}

func newUpstream(documents *Documents, untyped bool, authorizer authorizer.UnconditionalAuthorizer,
	namespaces []*corev1.Namespace) (*Upstream, error) {
	matcher, err := newMatcher(namespaces)
	if err != nil {
		return nil, err
	}
	u := &Upstream{dispatcher: validating.NewDispatcher(authorizer, generic.NewPolicyMatcher(matcher))}
	for i := range documents.Policies {
		policy := &documents.Policies[i]
		evaluator, err := compile(policy, untyped)
		if err != nil {
			return nil, err
		}
		hook := validating.PolicyHook{Policy: policy, Evaluator: evaluator}
		for j := range documents.Bindings {
			if documents.Bindings[j].Spec.PolicyName == policy.Name {
				hook.Bindings = append(hook.Bindings, &documents.Bindings[j])
			}
		}
		u.hooks = append(u.hooks, hook)
	}
	return u, nil
}

// newMatcher returns upstream's matcher for a cluster with these namespaces.
func newMatcher(namespaces []*corev1.Namespace) (*matching.Matcher, error) {
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, namespace := range namespaces {
		if err := indexer.Add(namespace); err != nil {
			return nil, err
		}
	}
	return matching.NewMatcher(listersv1.NewNamespaceLister(indexer), fake.NewSimpleClientset()), nil
}

// compile does what compilePolicy does upstream, which is not exported.
func compile(policy *validating.Policy, untyped bool) (validating.Validator, error) {
	spec := &policy.Spec
	all := plugincel.OptionalVariableDeclarations{HasAuthorizer: true, HasParams: spec.ParamKind != nil}
	compiler, err := newCompiler(untyped)
	if err != nil {
		return nil, err
	}
	for _, v := range spec.Variables {
		compiler.CompileAndStoreVariable(&validating.Variable{Name: v.Name, Expression: v.Expression}, all, environment.StoredExpressions)
	}
	condition := func(d plugincel.OptionalVariableDeclarations, n int,
		accessor func(i int) plugincel.ExpressionAccessor) plugincel.ConditionEvaluator {
		accessors := make([]plugincel.ExpressionAccessor, n)
		for i := range accessors {
			accessors[i] = accessor(i)
		}
		return compiler.CompileCondition(accessors, d, environment.StoredExpressions)
	}
	var matcher matchconditions.Matcher
	if len(spec.MatchConditions) > 0 {
		matcher = matchconditions.NewMatcher(condition(all, len(spec.MatchConditions), func(i int) plugincel.ExpressionAccessor {
			return (*matchconditions.MatchCondition)(&spec.MatchConditions[i])
		}), spec.FailurePolicy, "policy", "validate", policy.Name)
	}
	return validating.NewValidator(
		condition(all, len(spec.Validations), func(i int) plugincel.ExpressionAccessor {
			v := &spec.Validations[i]
			return &validating.ValidationCondition{Expression: v.Expression, Message: v.Message, Reason: v.Reason}
		}),
		matcher,
		condition(all, len(spec.AuditAnnotations), func(i int) plugincel.ExpressionAccessor {
			a := &spec.AuditAnnotations[i]
			return &validating.AuditAnnotationCondition{Key: a.Key, ValueExpression: a.ValueExpression}
		}),
		condition(plugincel.OptionalVariableDeclarations{HasParams: all.HasParams}, len(spec.Validations),
			func(i int) plugincel.ExpressionAccessor {
				if e := spec.Validations[i].MessageExpression; e != "" {
					return &validating.MessageExpressionCondition{MessageExpression: e}
				}
				return nil
			}),
		spec.FailurePolicy, nil), nil
}

// Sent returns the review: it is of this release.
func (u *Upstream) Sent(body []byte) ([]byte, error) { return body, nil }

// Answer evaluates the policies on a request.
func (u *Upstream) Answer(request *admissionv1.AdmissionRequest) (*Answer, error) {
	attributes, err := attributesOf(request)
	if err != nil {
		return nil, err
	}
	var given warnings
	ctx := audit.WithAuditContext(warning.WithWarningRecorder(context.Background(), &given))
	if err := audit.AuditContextFrom(ctx).Init(audit.RequestAuditConfig{Level: auditinternal.LevelMetadata}, nil); err != nil {
		return nil, err
	}
	audited := admission.WithAudit(u).(admission.ValidationInterface)
	denial := audited.Validate(ctx, attributes, admission.NewObjectInterfacesFromScheme(scheme.Scheme))
	answer := &Answer{Warnings: given.response.Warnings(), Annotations: map[string]string{}}
	if denial != nil {
		var withStatus apierrors.APIStatus
		if !errors.As(denial, &withStatus) {
			return nil, fmt.Errorf("got a denial without a status: %w", denial)
		}
		answer.Denied = new(withStatus.Status())
	}
	for key, value := range audit.AuditContextFrom(ctx).GetEventAnnotations() {
		answer.Annotations[ownKey(key)] = value
	}
	return answer, nil
}

// Handles implements admission.Interface.
func (u *Upstream) Handles(admission.Operation) bool { return true }

// Validate implements admission.ValidationInterface.
func (u *Upstream) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if slices.Contains(exclusion.Excluded(), a.GetResource().GroupResource()) { // as package generic does
		return nil
	}
	return u.dispatcher.Dispatch(ctx, a, o, u.hooks)
}

// ownKey returns fastadmit's key of an audit annotation.
func ownKey(key string) string {
	if policy, name := path.Split(key); policy != "validation.policy.admission.k8s.io/" {
		return policy[:len(policy)-1] + "." + name
	}
	return path.Base(key)
}

// warnings collects warnings as kube-apiserver's filter does.
type warnings struct{ response codec.Response }

// AddWarning implements warning.Recorder.
func (w *warnings) AddWarning(_, text string) { w.response.Warn(text) }

func attributesOf(r *admissionv1.AdmissionRequest) (admission.Attributes, error) {
	object, err := decode(r.Object.Raw)
	if err != nil {
		return nil, err
	}
	oldObject, err := decode(r.OldObject.Raw)
	if err != nil {
		return nil, err
	}
	options, err := decode(r.Options.Raw)
	if err != nil {
		return nil, err
	}
	extra := make(map[string][]string)
	for key, values := range r.UserInfo.Extra {
		extra[key] = values
	}
	who := &user.DefaultInfo{Name: r.UserInfo.Username, UID: r.UserInfo.UID, Groups: r.UserInfo.Groups, Extra: extra}
	return admission.NewAttributesRecord(object, oldObject, schema.GroupVersionKind(*r.RequestKind), r.Namespace, r.Name,
		schema.GroupVersionResource(*r.RequestResource), r.SubResource, admission.Operation(r.Operation), options, r.DryRun != nil &&
			*r.DryRun, who), nil
}

// decode returns an object of Go's type, or unstructured if there is none.
func decode(raw []byte) (runtime.Object, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
	if runtime.IsNotRegisteredError(err) {
		other := new(unstructured.Unstructured)
		return other, json.Unmarshal(raw, other)
	}
	return object, err
}
