package policy

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/policy/cel"
)

// decoded returns a review of a request for a Deployment, of a subresource, that was sent
// in version v1 and is named v2 in the request. More are fields of the request.
func decoded(t *testing.T, more string) *codec.Review {
	t.Helper()
	review := codec.Acquire()
	t.Cleanup(review.Release)
	if err := review.Decode(fmt.Appendf(nil,
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"CREATE",`+
			`"name":"web","namespace":"shop",%s"resource":{"group":"apps","version":"v1","resource":"deployments"},`+
			`"requestResource":{"group":"apps","version":"v2","resource":"deployments"},"subResource":"scale","object":{}}}`,
		more)); err != nil {
		t.Fatal(err)
	}
	return review
}

// TestAsker tests the request to the API server for an expression that checks permissions,
// and the resulting decision.
func TestAsker(t *testing.T) {
	const jane = `"userInfo":{"username":"jane","uid":"7","groups":["g"],"extra":{"scopes":["x","y"],"tenant":["z"]}},`
	const as = `"user":"jane","groups":["g"],"extra":{"scopes":["x","y"],"tenant":["z"]},"uid":"7"`
	f := func(user, expression, status, wantAsked, want string) {
		t.Helper()
		asked := ""
		access := cluster.SubjectAccessReviews.Called("create")
		state, err := cluster.New(cluster.Options{Embedded: true,
			Authorize: func(_ context.Context, r *authorizationv1.SubjectAccessReview) {
				text, _ := json.Marshal(&r.Spec)
				asked = string(text)
				_ = json.Unmarshal([]byte(status), &r.Status)
			}})
		if err == nil {
			err = state.Follow(t.Context(), access)
		}
		if err != nil {
			t.Fatal(err)
		}
		input := NewInput(t.Context(), decoded(t, user), cluster.AccessIn(state.View(access)))
		defer input.Release()
		x := cel.NewCompiler(false).Compile(expression, cel.Declarations{Authorizer: true}, cel.Any)
		var got string
		if value, err, fatal := cel.NewCompiler(false).Begin(input, 1<<40).Evaluate(x); err != nil || fatal != nil {
			got = fmt.Sprint(err, fatal)
		} else {
			got = fmt.Sprint(value.Value())
		}
		if asked != wantAsked || got != want {
			t.Errorf("%s\nasked %s, got  %s\nwant  %s, want %s", expression, asked, got, wantAsked, want)
		}
	}
	const may, mayNot, noOpinion = `{"allowed":true,"reason":"it may"}`, `{"denied":true,"reason":"never"}`, `{"reason":"nobody knows"}`
	const pods = `{"resourceAttributes":{"verb":"get","version":"*","resource":"pods"},` + as + `}`
	f(jane, "authorizer.group('').resource('pods').check('get').allowed()", may, pods, "true")
	f(jane, "authorizer.group('').resource('pods').check('get').allowed()", mayNot, pods, "false")
	f(jane, "authorizer.group('').resource('pods').check('get').allowed()", noOpinion, pods, "false")
	for _, status := range []string{may, mayNot, noOpinion} {
		var s authorizationv1.SubjectAccessReviewStatus
		_ = json.Unmarshal([]byte(status), &s)
		f(jane, "authorizer.group('').resource('pods').check('get').reason()", status, pods, s.Reason)
	}
	f(jane, "authorizer.path('/healthz').check('get').allowed()", may, `{"nonResourceAttributes":{"path":"/healthz","verb":"get"},`+as+`}`,
		"true")
	f(jane, "authorizer.requestResource.check('update').allowed()", may,
		`{"resourceAttributes":{"namespace":"shop","verb":"update","group":"apps",`+
			`"version":"*","resource":"deployments","subresource":"scale","name":"web"},`+as+`}`, "true")
	f(jane, "authorizer.group('').resource('pods').fieldSelector('a=b,c!=d').labelSelector('e in (f)').check('list').allowed()", may,
		`{"resourceAttributes":{"verb":"list","version":"*","resource":"pods","fieldSelector":{"rawSelector":"a=b,c!=d"},`+
			`"labelSelector":{"rawSelector":"e in (f)"}},`+as+`}`, "true")
	f(jane, "authorizer.group('').resource('pods').fieldSelector('a=b').check('list').allowed()", may,
		`{"resourceAttributes":{"verb":"list","version":"*","resource":"pods","fieldSelector":{"rawSelector":"a=b"}},`+as+`}`, "true")
	f("", "authorizer.group('').resource('pods').check('get').allowed()", may,
		`{"resourceAttributes":{"verb":"get","version":"*","resource":"pods"}}`, "true")
	f(`"userInfo":{"groups":"all"},`, "authorizer.group('').resource('pods').check('get').errored()", may, "", "true")
	const objects = codec.MemoryMax / 400 // each of them could be of 1 KB
	f(`"userInfo":{"username":"jane","extra":{"x":["`+strings.Repeat("{", objects)+`"]}},`,
		"authorizer.group('').resource('pods').check('get').errored()", may, "", "true")
}

// TestMatcherResources tests rules for the resource that the user asked for, in another
// version than the one that was sent, and rules with names.
func TestMatcherResources(t *testing.T) {
	review := decoded(t, "")
	f := func(policy, version, name string, want bool, wantErr string) {
		t.Helper()
		rule := fmt.Sprintf(`{"operations":["*"],"apiGroups":["apps"],"apiVersions":[%q],"resources":["deployments/scale"]%s}`,
			version, name)
		for _, text := range []string{
			fmt.Sprintf(`{"matchPolicy":%q,"resourceRules":[%s]}`, policy, rule),
			fmt.Sprintf(`{"matchPolicy":%q,"resourceRules":[{"operations":["*"],"apiGroups":["none"],"apiVersions":["*"],`+
				`"resources":["*"]},%s]}`, policy, rule),
		} {
			var resources admissionregistrationv1.MatchResources
			if err := json.Unmarshal([]byte(text), &resources); err != nil {
				t.Fatal(err)
			}
			m, err := NewMatcher(&resources)
			if err != nil {
				t.Fatal(err)
			}
			request, said := NewRequest(review), ""
			got, err := m.Matches(t.Context(), &request, nil)
			if err != nil {
				said = err.Error()
			}
			if got != want || !strings.HasPrefix(said, wantErr) || wantErr == "" && said != "" {
				t.Errorf("%s\ngot  %v, %s\nwant %v, %s", text, got, said, want, wantErr)
			}
		}
	}
	const web, other = `,"resourceNames":["a","web"]`, `,"resourceNames":["a"]`
	const converted = "failed to convert object version: got apps/v1 deployments, want a version that the policy names"
	f("Equivalent", "v1", "", true, "")
	f("Equivalent", "v1", web, true, "")
	f("Equivalent", "v1", other, false, "")
	f("Equivalent", "*", "", true, "")
	f("Equivalent", "v2", "", false, converted)
	f("Equivalent", "v2", other, false, "")
	f("Equivalent", "v3", "", false, "") // no release serves it, so it is not equivalent
	f("Equivalent", "v3", other, false, "")
	f("Exact", "*", "", true, "")
	f("Exact", "*", other, false, "")
	f("Exact", "v1", "", false, "")
	f("Exact", "v2", "", false, converted)
	f("Exact", "v3", "", false, "")
}

// TestMatcherExcludes tests rules that exclude a review in the version that was sent, in
// the one that the user asked for, and in others.
func TestMatcherExcludes(t *testing.T) {
	review := decoded(t, "")
	f := func(policy, version, name string, excluded bool) {
		t.Helper()
		text := fmt.Sprintf(`{"matchPolicy":%q,"excludeResourceRules":[{"operations":["*"],"apiGroups":["apps"],"apiVersions":[%q],`+
			`"resources":["deployments/scale"],`+
			`"resourceNames":[%q]}]}`, policy, version, name)
		var resources admissionregistrationv1.MatchResources
		if err := json.Unmarshal([]byte(text), &resources); err != nil {
			t.Fatal(err)
		}
		m, err := NewMatcher(&resources)
		if err != nil {
			t.Fatal(err)
		}
		request := NewRequest(review)
		if got, err := m.WithoutSelectors().Matches(t.Context(), &request, nil); got == excluded || err != nil {
			t.Errorf("%s: got %v, %v", text, got, err)
		}
	}
	f("Equivalent", "v1", "web", true)
	f("Equivalent", "v2", "web", true)
	f("Equivalent", "v3", "web", false)
	f("Equivalent", "*", "other", false)
	f("Exact", "v1", "web", false)
	f("Exact", "v2", "web", true)
	f("Exact", "v3", "web", false)
}
