package envtest_test

import (
	"context"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest/envtest"
	"github.com/fastadmit/fastadmit/admission/example/creator"
	"github.com/fastadmit/fastadmit/admission/example/spread"
)

// TestPlugins starts a real kube-apiserver that calls the plugins of the guide
// and one of fastadmit's own.
func TestPlugins(t *testing.T) {
	cluster := envtest.Start(t, envtest.Options{
		Plugins: []admission.Plugin{creator.Plugin(), spread.Plugin()},
		Enabled: []string{"AlwaysPullImages"},
	})
	ctx := context.Background()

	namespaces := clientOf(t, cluster, "jane").CoreV1().Namespaces()
	namespace, err := namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := namespace.Annotations["example.com/creator"]; got != "jane" {
		t.Errorf("got creator %q, want jane", got)
	}
	namespace.Annotations["example.com/creator"] = "joe"
	if _, err = namespaces.Update(ctx, namespace, metav1.UpdateOptions{}); err == nil || !strings.Contains(err.Error(), `must be "jane"`) {
		t.Errorf("got %v, want a denial", err)
	}

	labels := map[string]string{"app": "web"}
	deployment, err := cluster.Client.AppsV1().Deployments("shop").Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(3)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}}},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	constraints := deployment.Spec.Template.Spec.TopologySpreadConstraints
	if len(constraints) != 1 || constraints[0].TopologyKey != corev1.LabelTopologyZone ||
		constraints[0].LabelSelector.MatchLabels["app"] != "web" {
		t.Errorf("got constraints %v, want one over zones", constraints)
	}

	pod, err := cluster.Client.CoreV1().Pods("shop").Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1", ImagePullPolicy: corev1.PullNever}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := pod.Spec.Containers[0].ImagePullPolicy; got != corev1.PullAlways {
		t.Errorf("got pull policy %s, want Always", got)
	}
}

// clientOf returns a client that sends requests as an administrator with that
// name.
func clientOf(t *testing.T, cluster *envtest.Cluster, name string) kubernetes.Interface {
	t.Helper()
	config := rest.CopyConfig(cluster.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: []string{"system:masters"}}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}
