package policies

import (
	"encoding/json"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel/environment"

	fastadmission "github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
	fastadmit "github.com/fastadmit/fastadmit/internal/policy/matchconditions"
	"github.com/fastadmit/fastadmit/internal/seed"
)

// matchExpressions are conditions, each of which is true, false or fails on some recordings.
var matchExpressions = []string{
	"true", "false", "object != null", "oldObject == null", "object.spec.replicas > 1", "object.metadata.namespace == 'shop'",
	"object.spec.containers.all(c, c.image.contains(':'))", "request.operation in ['CREATE', 'UPDATE']", "request.kind.kind == 'Pod'",
	"request.userInfo.username.startsWith('system:')", "!('system:nodes' in request.userInfo.groups)", "has(request.namespace)",
	"request.dryRun", "has(object.metadata.labels) && 'app' in object.metadata.labels", "object.metadata.missing == 1", "1 / 0 == 1",
	"authorizer.requestResource.check('get').allowed()", "authorizer.group('apps').resource('deployments').check('delete').allowed()",
}

// TestMatchConditions compares both sides' evaluation of conditions for each recording.
func TestMatchConditions(t *testing.T) {
	rng := seed.Rand(t)
	compiler := plugincel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	access := newAccess(t)
	seen := make(map[string]int)
	for _, name := range corpus.Names() {
		for range 4 {
			var conditions []admissionregistrationv1.MatchCondition
			var accessors []plugincel.ExpressionAccessor
			for range 1 + rng.IntN(3) {
				c := admissionregistrationv1.MatchCondition{Name: "c", Expression: matchExpressions[rng.IntN(len(matchExpressions))]}
				conditions = append(conditions, c)
				accessors = append(accessors, (*matchconditions.MatchCondition)(&c))
			}
			policy := admissionregistrationv1.Fail
			if rng.IntN(2) == 0 {
				policy = admissionregistrationv1.Ignore
			}
			evaluator := compiler.CompileCondition(accessors, plugincel.OptionalVariableDeclarations{HasAuthorizer: true},
				environment.StoredExpressions)
			theirs := matchconditions.NewMatcher(evaluator, &policy, "webhook", "validating", "name")
			compiled, errs := fastadmit.Compile(conditions, policy, access, false, field.NewPath("matchConditions"))
			if errs != nil {
				t.Fatal(errs)
			}
			seen[compareMatches(t, name, theirs, compiled, conditions, policy)]++
		}
	}
	for _, outcome := range []string{"matches", "does not", "fails"} {
		if seen[outcome] < 10 {
			t.Errorf("got %d reviews where it %s, want 10 at least: %v", seen[outcome], outcome, seen)
		}
	}
	t.Log(seen)
}

func newAccess(t testing.TB) *atomic.Pointer[cluster.Access] {
	t.Helper()
	state, err := cluster.New(cluster.Options{Embedded: true, Authorize: authorize})
	if err != nil {
		t.Fatal(err)
	}
	need := cluster.SubjectAccessReviews.Called("create")
	if err := state.Follow(t.Context(), need); err != nil {
		t.Fatal(err)
	}
	access := new(atomic.Pointer[cluster.Access])
	access.Store(cluster.AccessIn(state.View(need)))
	return access
}

func compareMatches(t *testing.T, name string, theirs matchconditions.Matcher, compiled *fastadmit.Conditions,
	conditions []admissionregistrationv1.MatchCondition, policy admissionregistrationv1.FailurePolicyType,
) (outcome string) {
	t.Helper()
	body := corpus.MustRead(name)
	var sent admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &sent); err != nil {
		t.Fatal(err)
	}
	attributes, err := attributesOf(sent.Request)
	if err != nil {
		t.Fatal(err)
	}
	want := theirs.Match(t.Context(), &admission.VersionedAttributes{
		Attributes: attributes, VersionedKind: attributes.GetKind(),
		VersionedObject:    admission.NewLazyObject(attributes.GetObject()),
		VersionedOldObject: admission.NewLazyObject(attributes.GetOldObject()),
	}, nil, readOnly{})
	wantText := ""
	if want.Error != nil {
		r := sent.Request.Resource
		wantText = apierrors.NewForbidden(schema.GroupResource{Group: r.Group, Resource: r.Resource}, sent.Request.Name,
			want.Error).Error()
	}
	review := codec.Acquire()
	defer review.Release()
	if err := review.Decode(body); err != nil {
		t.Fatal(err)
	}
	matches, err := compiled.Matches(t.Context(), review, fastadmission.AttributesOf(review))
	gotText := ""
	if err != nil {
		gotText = err.Error()
	}
	if matches != want.Matches || gotText != wantText {
		t.Errorf("%s, %s, %v:\n got %v, %s\nwant %v, %s", name, policy, conditions, matches, gotText, want.Matches, wantText)
	}
	switch {
	case want.Error != nil:
		return "fails"
	case want.Matches:
		return "matches"
	}
	return "does not"
}
