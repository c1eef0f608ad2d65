package oracle_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/authorization/union"
	"k8s.io/kubernetes/pkg/registry/rbac/validation"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac"

	"github.com/fastadmit/fastadmit/e2e/oracle"
	"github.com/fastadmit/fastadmit/e2e/tables"
	"github.com/fastadmit/fastadmit/handlers"
)

// ownerReferences is the suite of OwnerReferencesPermissionEnforcement. Its access reviews
// need connections, which cannot be in a bubble.
func ownerReferences() suite {
	world := func(g *generator) oracle.World { return oracle.World{Authorizer: chance(g.Uint64())} }
	return suite{name: "OwnerReferencesPermissionEnforcement", generate: (*generator).ownedCase, denies: true, background: true,
		authorizer: rbacAuthorizer,
		variants:   []variant{{options: handlers.DefaultOptions(), world: world}}}
}

// rbacAuthorizer is the RBAC authorizer of API servers with the roles of the tables.
func rbacAuthorizer(t *testing.T) authorizer.UnconditionalAuthorizer {
	t.Helper()
	cases, err := tables.Read("../testdata/rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var roles []*rbacv1.ClusterRole
	var bindings []*rbacv1.ClusterRoleBinding
	for _, c := range cases {
		switch object := typed(t, c.New()).(type) {
		case *rbacv1.ClusterRole:
			roles = append(roles, object)
		case *rbacv1.ClusterRoleBinding:
			bindings = append(bindings, object)
		}
	}
	_, static := validation.NewTestRuleResolver(nil, nil, roles, bindings)
	both, err := union.New(
		union.NamedAuthorizer{AuthorizerName: "privileged", Authorizer: authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup)},
		union.NamedAuthorizer{AuthorizerName: "rbac", Authorizer: rbac.New(static, static, static, static)})
	if err != nil {
		t.Fatal(err)
	}
	return both
}

// chance is a random authorizer that gives the same answer to the same question.
type chance uint64

func (c chance) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	u := a.GetUser()
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %q %q %q %v", c, u.GetName(), u.GetUID(), u.GetGroups(), u.GetExtra())
	fmt.Fprintf(h, " %q %q %q %q %q %q %q %t %q", a.GetVerb(), a.GetNamespace(), a.GetAPIGroup(), a.GetAPIVersion(), a.GetResource(),
		a.GetSubresource(), a.GetName(), a.IsResourceRequest(), a.GetPath())
	n := h.Sum64() >> 3
	var err error
	if n/64%4 == 0 {
		err = fmt.Errorf("clusterrole %d not found", n%10)
	}
	reason := [...]string{"", "RBAC: allowed", `no "relationship" found`}[n/1024%3]
	switch n % 8 {
	case 0:
		return authorizer.DecisionDeny, reason, err
	case 1, 2:
		return authorizer.DecisionNoOpinion, reason, errors.Join(err)
	}
	return authorizer.DecisionAllow, reason, err
}

// ownedCase writes an object with owners. It uses few names, because the API server's
// stand-in allows some hundred questions of a world at once.
func (g *generator) ownedCase() *oracle.Case {
	if g.in(10) {
		return g.other()
	}
	writables := g.writables()
	w := writables[g.IntN(len(writables)-2)] // the last two have no owners
	if g.in(3) {
		w = at("v1 Pod pods", func() runtime.Object { return g.aPod() })
	}
	operation := admission.Update
	if w.createOnly || g.in(3) {
		operation = admission.Create
	}
	c := g.request(operation, w.kind, w.resource)
	c.Subresource = w.subresource
	if w.kind == podKind && g.in(4) {
		c.Subresource = pick(g, "status", "ephemeralcontainers")
	}
	owned := func(references []metav1.OwnerReference) runtime.Object {
		object := w.object()
		m := object.(metav1.Object)
		m.SetName(pick(g, "a", "a", "web-0"))
		m.SetOwnerReferences(references)
		return object
	}
	references := some(g, 3, g.ownerReference)
	c = g.write(c, owned(references), func() runtime.Object { return owned(g.changedReferences(references)) })
	c.Namespace = pick(g, "", "shop")
	c.User = user.DefaultInfo{Name: pick(g, "alice", "system:node:n1"), UID: "7", Groups: []string{"g", "system:authenticated"},
		Extra: map[string][]string{"scopes": {"x", "y"}, "Example.com/none": nil}}
	return c
}

func (g *generator) ownerReference() metav1.OwnerReference {
	kind := pick(g, "apps/v1 ReplicaSet", "apps/v1 ReplicaSet", "v1 Node", "v1 Namespace", "batch/v1 Job", "apps/v1 Job", "v1 PodList",
		"v1 pod", "v1 List",
		"apps/v9 ReplicaSet", "example.com/v1 Shop", "a/b/c Shop", "Apps/v1 ReplicaSet", "apps/../v1 Pod",
		"storage.k8s.io/v1 StorageClass")
	r := metav1.OwnerReference{Name: pick(g, "o", "o", `q"`), UID: types.UID(pick(g, "1", "2", "3")),
		Controller: maybe(g, func() bool { return g.in(2) }), BlockOwnerDeletion: maybe(g, func() bool { return !g.in(4) })}
	fmt.Sscan(kind, &r.APIVersion, &r.Kind)
	return r
}

// changedReferences returns references with a few changes, or none.
func (g *generator) changedReferences(references []metav1.OwnerReference) []metav1.OwnerReference {
	var changed []metav1.OwnerReference
	for _, r := range references {
		switch g.IntN(8) {
		case 0:
			continue
		case 1:
			r.BlockOwnerDeletion = nil
		case 2:
			r.BlockOwnerDeletion = new(g.in(2))
		case 3:
			r.Controller = nil
		case 4:
			changed = append(changed, g.ownerReference())
		}
		changed = append(changed, r)
	}
	if g.in(8) {
		g.Shuffle(len(changed), func(i, j int) { changed[i], changed[j] = changed[j], changed[i] })
	}
	return changed
}
