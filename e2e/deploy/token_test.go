package deploy

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/fastadmit/fastadmit/e2e/cluster"
	"github.com/fastadmit/fastadmit/e2e/walkthrough"
)

const certificateSecret = "fastadmit-certificate"

// TestPodToken checks that the token of fastadmit's pods gives no access to other accounts of the
// namespace, and that upgrades do not change the data of the Secret.
func TestPodToken(t *testing.T) {
	t.Parallel()
	s := &stand{helmPath: walkthrough.Tool(t, "helm")}
	s.APIServer = cluster.StartEtcd(t).StartAPIServer(t, cluster.APIServerOptions{Flags: map[string]string{
		"authorization-mode": "RBAC", "disable-admission-plugins": "",
	}})
	s.kubeconfig = s.Kubeconfig(t)
	s.StartControllerManager(t, "serviceaccount-controller", "garbage-collector-controller", "namespace-controller")
	install := []string{"upgrade", "--install", "fastadmit", chart, "--set", "plugins.AlwaysPullImages.failurePolicy=Fail",
		"--set", "registrationCheck.enabled=false"}
	s.helm(t, append(install, "--create-namespace")...)
	holder := s.As(t, "system:serviceaccount:fastadmit:fastadmit",
		[]string{"system:serviceaccounts", "system:serviceaccounts:fastadmit", "system:authenticated"}).Client.CoreV1().Secrets("fastadmit")
	cluster.Await(t, "the policy works", func() error {
		return wantsOnlyData(update(holder, func(secret *corev1.Secret) { secret.Annotations["now"] = time.Now().String() }))
	})
	t.Run("the Secret", func(t *testing.T) { fills(t, holder) })
	t.Run("others", func(t *testing.T) { othersOf(t, holder) })
	data := func() map[string][]byte {
		t.Helper()
		secret, err := s.Client.CoreV1().Secrets("fastadmit").Get(context.Background(), certificateSecret, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return secret.Data
	}
	filled := data()
	for range 2 {
		s.helm(t, install...)
		if got := data(); !maps.EqualFunc(got, filled, func(a, b []byte) bool { return string(a) == string(b) }) {
			t.Errorf("after an upgrade: got data %q, want %q", got, filled)
		}
	}

	// The Secret of a version that made it itself, and made a ClusterRole its owner.
	s.helm(t, "uninstall", "fastadmit")
	s.MustKubectl(t, "", "create", "clusterrole", "older", "--verb=get", "--resource=pods")
	owner, err := s.Client.RbacV1().ClusterRoles().Get(context.Background(), "older", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	old := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: certificateSecret, OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole", Name: owner.Name, UID: owner.UID}}},
		Type: corev1.SecretTypeTLS, Data: map[string][]byte{"tls.crt": []byte("a"), "tls.key": []byte("b")},
	}
	if _, err := s.Client.CoreV1().Secrets("fastadmit").Create(context.Background(), old, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s.helm(t, install...)
		if got := data(); string(got["tls.crt"]) != "a" {
			t.Errorf("after an upgrade from an older version: got data %q, want what there was", got)
		}
	}
	manifests := s.helm(t, append([]string{"template"}, install[2:]...)...)
	s.MustKubectl(t, manifests, "apply", "--server-side", "--force-conflicts", "-f", "-")
	if got := data(); string(got["tls.crt"]) != "a" {
		t.Errorf("after kubectl apply: got data %q, want what there was", got)
	}
}

// update changes the Secret.
func update(holder corev1client.SecretInterface, change func(secret *corev1.Secret)) error {
	secret, err := holder.Get(context.Background(), certificateSecret, metav1.GetOptions{})
	if err == nil {
		change(secret)
		_, err = holder.Update(context.Background(), secret, metav1.UpdateOptions{})
	}
	return err
}

func wantsOnlyData(err error) error {
	return cluster.WantError(err, "fastadmit may change only the data of this Secret")
}

// fills changes the data of the Secret, which must be allowed, and then all other parts of it, which must not.
func fills(t *testing.T, holder corev1client.SecretInterface) {
	if err := update(holder, func(secret *corev1.Secret) { secret.Data = map[string][]byte{"tls.crt": []byte("filled")} }); err != nil {
		t.Error(err)
	}
	f := func(what string, change func(secret *corev1.Secret)) {
		t.Helper()
		if err := wantsOnlyData(update(holder, change)); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	f("an owner that does not exist", func(secret *corev1.Secret) {
		secret.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "none", UID: types.UID("none")}}
	})
	f("a finalizer", func(secret *corev1.Secret) { secret.Finalizers = []string{"example.com/stays"} })
	f("no label", func(secret *corev1.Secret) { secret.Labels = nil })
	f("another annotation", func(secret *corev1.Secret) {
		secret.Annotations["cert-manager.io/certificate-name"] = "a"
	})
	f("immutable", func(secret *corev1.Secret) { secret.Immutable = new(true) })
}

// othersOf tries to create, delete and read other Secrets with the account.
func othersOf(t *testing.T, holder corev1client.SecretInterface) {
	ctx := context.Background()
	f := func(what string, err error) {
		t.Helper()
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "cannot "+what+" resource") {
			t.Errorf("%s: got %v, want that the account may not", what, err)
		}
	}
	_, err := holder.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "stolen", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}},
		Type:       corev1.SecretTypeServiceAccountToken,
	}, metav1.CreateOptions{})
	f("create", err)
	_, err = holder.Patch(ctx, certificateSecret, types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
	f("patch", err)
	f("delete", holder.Delete(ctx, certificateSecret, metav1.DeleteOptions{}))
	f("deletecollection", holder.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	_, err = holder.Get(ctx, "another", metav1.GetOptions{})
	f("get", err)
	_, err = holder.List(ctx, metav1.ListOptions{})
	f("list", err)
}
