package certs

import (
	"context"
	"fmt"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fastadmit/fastadmit/e2e/cluster"
	"github.com/fastadmit/fastadmit/internal/registration/certs"
)

const (
	// managerToken is the token of the user manager, who has the permissions in
	// certs.Options.Rules.
	managerToken = "manager"

	// services is the range of the cluster's Services: addresses of this
	// machine, so that an API server reaches them without a cluster network.
	services = "127.11.0.0/16"
)

// startCluster starts an etcd and replicas of an API server, in which only the
// admin may do anything. They end with the test.
func startCluster(t *testing.T, replicas int) []*cluster.APIServer {
	t.Helper()
	etcd := cluster.StartEtcd(t)
	var all []*cluster.APIServer
	for range replicas {
		all = append(all, etcd.StartAPIServer(t, cluster.APIServerOptions{Flags: map[string]string{
			"authorization-mode": "RBAC",
			"token-auth-file": cluster.WriteFile(t, "tokens.csv",
				fmt.Appendf(nil, "%s,admin,admin,system:masters\n%s,manager,manager\n", cluster.Token, managerToken)),
			"service-cluster-ip-range": services,
		}}))
	}
	return all
}

// allow gives the user manager the permissions that the options need, in a
// ClusterRole of that name, and no others. It waits until all API servers know.
func allow(t *testing.T, servers []*cluster.APIServer, name string, o *certs.Options) {
	t.Helper()
	s := servers[0]
	role, clusterRole := o.Rules()
	ctx, rbac := context.Background(), s.Client.RbacV1()
	subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "manager"}}
	meta := metav1.ObjectMeta{Name: name}
	_, err1 := rbac.Roles(o.SecretNamespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: role}, metav1.CreateOptions{})
	_, err2 := rbac.RoleBindings(o.SecretNamespace).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}}, metav1.CreateOptions{})
	_, err3 := rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: clusterRole}, metav1.CreateOptions{})
	_, err4 := rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}}, metav1.CreateOptions{})
	for _, err := range []error{err1, err2, err3, err4} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range servers {
		config := rest.CopyConfig(s.Config)
		config.BearerToken = managerToken
		manager, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		cluster.Await(t, "the rules", func() error {
			_, err := manager.CoreV1().Secrets(o.SecretNamespace).Get(ctx, o.SecretName, metav1.GetOptions{})
			if err == nil { // prepare has made it
				_, err = manager.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, "fastadmit.io", metav1.GetOptions{})
			}
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("got %w, want the Secret, and no configuration", err)
		})
	}
}
