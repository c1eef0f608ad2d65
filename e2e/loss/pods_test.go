package loss

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/e2e/cluster"
)

const (
	namespace   = "fastadmit"
	serviceHost = "fastadmit.fastadmit.svc"
	servicePort = 4443
	podPort     = 8443

	// endpointLag is how long it takes until a pod that is told to end is no
	// longer among the endpoints. Kubernetes does both at once, and promises
	// nothing about which is first.
	endpointLag = time.Second
	// shutdownDelay covers that, and what a busy API server takes to hear of it.
	shutdownDelay = 5 * time.Second

	// noticeDelay is after how long the kubelet notices that a container ended
	// (k8s.io/kubernetes pkg/kubelet genericPlegRelistPeriod).
	noticeDelay = time.Second

	// The readiness probe of the chart.
	probePeriod, probeTimeout, probeFailures = 2 * time.Second, 2 * time.Second, 3
)

// A pod is a fastadmit with an address of its own.
type pod struct {
	*cluster.Fastadmit
	address string
	command []string
	// conditions are those of its endpoint.
	ready, terminating bool
}

// pods are the replicas behind the Service, and what they have mounted.
type pods struct {
	api       *cluster.APIServer
	authority *cluster.Authority
	files     string // folder of certificate, key and configuration
	all       []*pod
	started   int
}

// write replaces files of the pods, as the kubelet does: all at once to whoever
// looks at one.
func (p *pods) write(t *testing.T, files map[string][]byte) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(p.files, name)
		if err := os.WriteFile(path+".new", content, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
}

// certificate returns the files of a new one.
func (p *pods) certificate(t *testing.T) map[string][]byte {
	t.Helper()
	certificate, key := p.authority.Sign(t, cluster.Serving(time.Now().Add(24*time.Hour), serviceHost))
	return map[string][]byte{"tls.crt": certificate, "tls.key": key}
}

// start starts a pod, and adds it to the endpoints when it is ready.
func (p *pods) start(t *testing.T, binary string, flags ...string) {
	t.Helper()
	p.started++
	addNamespace(t, p.started)
	at := address(p.started)
	n := &pod{address: at, command: append([]string{"ip", "netns", "exec", namespaceName(p.started), binary, "serve",
		"--bind-address", at, "--secure-port", fmt.Sprint(podPort), "--metrics-bind-address", at + ":8080",
		"--tls-cert-file", filepath.Join(p.files, "tls.crt"), "--tls-private-key-file", filepath.Join(p.files, "tls.key"),
		"--config", filepath.Join(p.files, "config.yaml"), "--shutdown-delay-duration", shutdownDelay.String()}, flags...)}
	p.all = append(p.all, n)
	p.run(t, n)
}

// run runs the container of a pod.
func (p *pods) run(t *testing.T, n *pod) {
	t.Helper()
	n.Fastadmit = cluster.RunFastadmit(t, n.command...)
	cluster.Await(t, "readiness", n.probe)
	n.ready = true
	p.publish(t)
}

// probe is the readiness probe.
func (n *pod) probe() error {
	client := http.Client{Timeout: probeTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get("http://" + n.address + ":8080/readyz")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("got status %d", response.StatusCode)
	}
	return nil
}

// delete ends a pod as Kubernetes does: it is told to end, and learns sooner
// than API servers that it gets no more calls.
func (p *pods) delete(t *testing.T, n *pod) {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		n.Stop(t)
	}()
	time.Sleep(endpointLag)
	n.ready, n.terminating = false, true
	p.publish(t)
	<-ended
	p.all = slices.DeleteFunc(p.all, func(other *pod) bool { return other == n })
	p.publish(t)
}

// publish writes the EndpointSlice, as the endpoint slice controller does.
func (p *pods) publish(t *testing.T) {
	t.Helper()
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: "fastadmit-1", Namespace: namespace, Labels: map[string]string{discoveryv1.LabelServiceName: "fastadmit"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("webhook"), Port: new(int32(podPort)), Protocol: new(corev1.ProtocolTCP)}},
	}
	for _, n := range p.all {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{n.address},
			Conditions: discoveryv1.EndpointConditions{
				Ready: new(n.ready), Serving: new(n.ready || n.terminating), Terminating: new(n.terminating),
			},
		})
	}
	if _, err := p.api.Client.DiscoveryV1().EndpointSlices(namespace).Update(context.Background(), slice, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// prepare makes the Service, without endpoints.
func (p *pods) prepare(t *testing.T) {
	t.Helper()
	p.api.MustKubectl(t, fmt.Sprintf(`
{apiVersion: v1, kind: Namespace, metadata: {name: fastadmit}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: tenant}}
---
{apiVersion: v1, kind: Service, metadata: {name: fastadmit, namespace: fastadmit},
 spec: {selector: {app: fastadmit}, ports: [{name: webhook, port: %d, targetPort: %d}]}}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: fastadmit-1, namespace: fastadmit,
 labels: {kubernetes.io/service-name: fastadmit}}, addressType: IPv4, ports: [], endpoints: []}
`, servicePort, podPort), "apply", "-f", "-")
}
