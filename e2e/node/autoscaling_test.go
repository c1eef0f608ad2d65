package node

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/e2e/cluster"
)

const (
	// autoscaled are values with which a small load is enough for more pods, and pods are removed
	// soon after it ends. The stream of requests alone takes less than half of what the pods request.
	autoscaled = `
resources: {requests: {cpu: 42m}}
autoscaling:
  enabled: true
  minReplicas: 2
  maxReplicas: 3
  behavior: {scaleDown: {stabilizationWindowSeconds: 10}}
`
	// loadRate is the rate of the load in requests a second. With it, two pods use more than they
	// request. loadInFlight keeps a slow machine from getting more load than it can answer.
	loadRate     = "1300"
	loadInFlight = "20"
)

// metricsServer are the manifests of metrics-server. It is configured to query the kubelet more
// often, and to trust the certificate that the kubelet made for itself.
func metricsServer(t *testing.T, s *test) string {
	t.Helper()
	dir := moduleFolder(t, "metricsserver", "sigs.k8s.io/metrics-server")
	return strings.NewReplacer(
		"gcr.io/k8s-staging-metrics-server/metrics-server:master", image("metrics-server"),
		"--metric-resolution=15s", "--metric-resolution=10s\n        - --kubelet-request-timeout=5s\n        - --kubelet-insecure-tls",
		"initialDelaySeconds: 20", "initialDelaySeconds: 1",
	).Replace(s.MustKubectl(t, "", "kustomize", dir+"/manifests/base"))
}

// scaledByLoad lets the HorizontalPodAutoscaler start pods while "fastadmit bench" sends requests
// to the Service, and end them afterwards.
func (s *test) scaledByLoad(t *testing.T) int {
	s.load(t, "metrics-server")
	manifests := metricsServer(t, s)
	s.MustKubectl(t, manifests, "apply", "-f", "-")
	defer s.MustKubectl(t, manifests, "delete", "-f", "-") // without a server, its APIService would keep namespaces from being deleted
	s.Values(t, autoscaled)
	s.Does(t, "--reset-then-reuse-values")
	cluster.Await(t, "the HorizontalPodAutoscaler to know what the pods use", func() error {
		h, err := s.Client.AutoscalingV2().HorizontalPodAutoscalers("fastadmit").Get(context.Background(), "fastadmit",
			metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(h.Status.CurrentMetrics) == 0 || h.Status.CurrentMetrics[0].Resource == nil {
			return fmt.Errorf("got %+v", h.Status)
		}
		return nil
	})
	s.await(t, 2)
	s.neverTooFew(t)
	stop := s.startLoad(t)
	s.await(t, 3)
	stop()
	s.await(t, 2)
	s.Values(t, "autoscaling: {enabled: false}\nresources: {requests: {cpu: 100m}}\n")
	s.Does(t, "--reset-then-reuse-values")
	return 0
}

// neverTooFew checks that the upgrade that enabled autoscaling did not reduce the number of pods:
// the HorizontalPodAutoscaler reports if it found fewer.
func (s *test) neverTooFew(t *testing.T) {
	t.Helper()
	events, err := s.Client.CoreV1().Events("fastadmit").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=SuccessfulRescale"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range events.Items {
		if message := events.Items[i].Message; strings.Contains(message, "below Spec.MinReplicas") {
			t.Errorf("got the Event %q, want as many pods as before", message)
		}
	}
}

// startLoad sends requests with the released fastadmit, as kube-apiserver does, until stop is
// called. All answers must be right.
func (s *test) startLoad(t *testing.T) (stop func()) {
	t.Helper()
	service, err := s.Client.CoreV1().Services("fastadmit").Get(t.Context(), "fastadmit", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	configuration, err := s.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(t.Context(), "fastadmit.io",
		metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	client := configuration.Webhooks[0].ClientConfig
	var printed strings.Builder
	bench := exec.Command(cluster.Built(release+"/fastadmit-linux-amd64"), "bench", "https://"+service.Spec.ClusterIP+*client.Service.Path,
		"--tls-server-name=fastadmit.fastadmit.svc", "--certificate-authority="+cluster.WriteFile(t, "ca.crt", client.CABundle),
		"--weights=pods:create=1", "--rate="+loadRate, "--in-flight="+loadInFlight, "--duration=1h")
	bench.Stdout, bench.Stderr = &printed, &printed
	bench.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := bench.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bench.Process.Kill() }) // an error means that it has ended
	return func() {
		if err := bench.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := bench.Wait(); err != nil {
			t.Errorf("%v: %s", err, printed.String())
		}
		t.Logf("the load:\n%s", printed.String())
	}
}
