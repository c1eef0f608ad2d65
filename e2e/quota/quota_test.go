// Package quota replaces a real API server's ResourceQuota with that of two replicas of fastadmit.
// The quota controller runs as usual.
package quota

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fastadmit/fastadmit/e2e/cluster"
	"github.com/fastadmit/fastadmit/e2e/tally"
	"github.com/fastadmit/fastadmit/handlers/resourcequota"
)

const (
	attempts = 400 // pods that are created at the same time
	name     = "quota"
	waitMax  = 2 * time.Minute // for the controller
)

// stand is what the tests share.
type stand struct {
	*cluster.APIServer
	authority *cluster.Authority
	replicas  []*cluster.Fastadmit
	row       tally.Row
}

func TestQuota(t *testing.T) {
	s := &stand{authority: cluster.NewAuthority(t), row: tally.Row{Plugin: "ResourceQuota", Test: "two replicas, pods at once"}}
	s.APIServer = cluster.StartEtcd(t).StartAPIServer(t, cluster.APIServerOptions{})
	s.StartControllerManager(t, "replicaset-controller", "resourcequota-controller")
	for range 2 {
		s.replicas = append(s.replicas, cluster.StartFastadmit(t, cluster.Binary, s.authority, "--kubeconfig", s.Kubeconfig(t),
			"--enable-admission-plugins", "ResourceQuota,AlwaysDeny", "--allow-unauthenticated-writes"))
	}
	for _, replica := range s.replicas {
		replica.AwaitReady(t)
	}
	hook := cluster.Webhook{URL: "https://" + s.balance(t) + "/validate/ResourceQuota", CA: s.authority.PEM, Equivalent: true, Timeout: 30}
	for _, rule := range resourcequota.Plugin().Rules {
		hook.Rules = append(hook.Rules, rule.WithOperations())
	}
	t.Run("Names", func(t *testing.T) { s.names(t, hook) })
	s.Validating(t, cluster.Webhook{URL: s.replicas[0].URL, CA: s.authority.PEM}, hook)
	t.Run("Pods", func(t *testing.T) { s.atOnce(t, "pods", 150, "100m", corev1.ResourcePods, "60", 60) })
	t.Run("Requests", func(t *testing.T) {
		s.atOnce(t, "requests", 150, "250m", corev1.ResourceRequestsCPU, "20", 80)
	})
	t.Run("DryRuns", s.dryRuns)
	t.Run("Denied", s.denied)
	s.tookPart(t)
	if err := s.row.Write(); err != nil {
		t.Fatal(err)
	}
}

// balance forwards connections to the replicas in turns, and returns the address to connect to.
func (s *stand) balance(t *testing.T) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for i := 0; ; i++ {
			from, err := ln.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", strings.TrimPrefix(s.replicas[i%len(s.replicas)].URL, "https://"))
			if err != nil {
				from.Close()
				continue
			}
			go func() { _, _ = io.Copy(to, from); to.Close() }()
			go func() { _, _ = io.Copy(from, to); from.Close() }()
		}
	}()
	return ln.Addr().String()
}

// prepare creates a namespace with a quota, and waits until the controller has counted and both
// replicas have read the result.
func (s *stand) prepare(t *testing.T, namespace string, hard map[corev1.ResourceName]string) {
	t.Helper()
	ctx := context.Background()
	if _, err := s.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{"team": "a"}, Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: "{}"},
		Finalizers: []string{"example.com/hold"},
	}}
	q.Spec.Hard = corev1.ResourceList{corev1.ResourceConfigMaps: resource.MustParse("0")} // so that each replica denies one
	for name, quantity := range hard {
		q.Spec.Hard[name] = resource.MustParse(quantity)
	}
	if _, err := s.Client.CoreV1().ResourceQuotas(namespace).Create(ctx, q, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.await(t, namespace, "the controller counts", func(q *corev1.ResourceQuota) bool { return len(q.Status.Used) == len(hard)+1 })
	s.awaitReplicas(t, namespace, "configmaps")
}

// awaitReplicas waits until each replica denies one more object of a resource.
func (s *stand) awaitReplicas(t *testing.T, namespace, resource string) {
	t.Helper()
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(s.authority.PEM)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}}}
	defer client.CloseIdleConnections()
	body := fmt.Sprintf(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1","resource":{"version":"v1",`+
		`"resource":%q},`+
		`"name":"x","namespace":%q,"operation":"CREATE","dryRun":true,"object":{"spec":{"containers":[{"name":"c",`+
		`"resources":{"requests":{"cpu":"1m"}}}]}}}}`,
		resource, namespace)
	for _, replica := range s.replicas {
		for deadline := time.Now().Add(waitMax); ; time.Sleep(20 * time.Millisecond) {
			response, err := client.Post(replica.URL+"/validate/ResourceQuota", "application/json", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			answer, err := io.ReadAll(response.Body)
			response.Body.Close()
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(answer), "exceeded quota: "+name) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s has not heard of the quota of %s: %s", replica.URL, namespace, answer)
			}
		}
	}
}

func (s *stand) quota(t *testing.T, namespace string) *corev1.ResourceQuota {
	t.Helper()
	q, err := s.Client.CoreV1().ResourceQuotas(namespace).Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// await waits until the quota is as it should be.
func (s *stand) await(t *testing.T, namespace, what string, holds func(q *corev1.ResourceQuota) bool) {
	t.Helper()
	for deadline := time.Now().Add(waitMax); ; time.Sleep(50 * time.Millisecond) {
		q := s.quota(t, namespace)
		if holds(q) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s: %v", what, q.Status)
		}
	}
}

// create creates a pod.
func (s *stand) create(namespace, cpu string, dryRun bool) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "p-"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu)}},
	}}}}
	options := metav1.CreateOptions{}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	_, err := s.Client.CoreV1().Pods(namespace).Create(context.Background(), pod, options)
	return err
}

// exceeds reports whether an error says that a quota is exceeded.
func exceeds(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota: "+name)
}

// createMany creates pods concurrently. It returns how many were created and how many exceeded the
// quota. Other results are errors.
func (s *stand) createMany(t *testing.T, namespace, cpu string, dryRun bool) (created, denied int64) {
	t.Helper()
	var made, refused atomic.Int64
	var all sync.WaitGroup
	var mu sync.Mutex
	for range attempts {
		s.row.Cases++
		all.Go(func() {
			switch err := s.create(namespace, cpu, dryRun); {
			case err == nil:
				made.Add(1)
			case exceeds(err):
				refused.Add(1)
			default:
				mu.Lock()
				defer mu.Unlock()
				t.Errorf("a pod in %s: %v", namespace, err)
				s.row.Different = append(s.row.Different, fmt.Sprintf("a pod in %s: %v", namespace, err))
			}
		})
	}
	all.Wait()
	return made.Load(), refused.Load()
}

// atOnce creates more pods than the quota allows: exactly as many are created as fit, and the quota
// never shows more.
func (s *stand) atOnce(t *testing.T, namespace string, pods int64, cpu string, limited corev1.ResourceName, limit string, fits int64) {
	hard := map[corev1.ResourceName]string{corev1.ResourcePods: fmt.Sprint(pods), corev1.ResourceRequestsCPU: "1k", limited: limit}
	s.prepare(t, namespace, hard)
	before, writes, failed := s.quota(t, namespace), s.sum(t, updates), s.sum(t, failedUpdates)
	stop, over := make(chan struct{}), make(chan string, 1)
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			q, err := s.Client.CoreV1().ResourceQuotas(namespace).Get(context.Background(), name, metav1.GetOptions{})
			if err == nil {
				if used := q.Status.Used[limited]; used.Cmp(resource.MustParse(limit)) > 0 {
					select {
					case over <- used.String():
					default:
					}
				}
			}
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	})
	created, denied := s.createMany(t, namespace, cpu, false)
	close(stop)
	watching.Wait()
	select {
	case used := <-over:
		t.Errorf("%s: got %s of %s used, want at most %s", namespace, used, limited, limit)
		s.row.Different = append(s.row.Different, namespace+" went over its quota")
	default:
	}
	list, err := s.Client.CoreV1().Pods(namespace).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	q := s.quota(t, namespace)
	used, stored, failed := q.Status.Used[corev1.ResourcePods], int64(len(list.Items)), s.sum(t, failedUpdates)-failed
	// A write whose answer did not arrive in time may have been made. It is charged again, as
	// in-tree, so more is counted than exists.
	fewer := failed > 0 && created < fits && used.Value() > created && used.Value() <= fits
	if created+denied != attempts || stored != created || !fewer && (created != fits || used.Value() != fits) {
		t.Errorf("%s: got %d created, %d denied, %d stored, %s counted and %d failed writes, want %d and the others denied",
			namespace, created, denied, stored, used.String(), failed, fits)
		s.row.Different = append(s.row.Different, namespace+" has not what fits")
	}
	if fewer && stored > 0 {
		t.Logf("%s: %d failed writes, %d pods and %s counted", namespace, failed, stored, used.String())
		if err := s.Client.CoreV1().Pods(namespace).Delete(context.Background(), list.Items[0].Name,
			metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
			t.Fatal(err)
		}
		s.await(t, namespace, "what there is is counted", func(q *corev1.ResourceQuota) bool {
			used := q.Status.Used[corev1.ResourcePods]
			return used.Value() == stored-1
		})
	}
	t.Logf("%s: %d pods of %d, charged with %d writes", namespace, created, attempts, s.sum(t, updates)-writes)
	if !maps.Equal(q.Labels, before.Labels) || !maps.Equal(q.Annotations, before.Annotations) || len(q.Finalizers) != 1 ||
		!maps.EqualFunc(q.Spec.Hard, before.Spec.Hard, resource.Quantity.Equal) {
		t.Errorf("%s: got %+v, want nothing changed but the status", namespace, q)
	}
	// The controller subtracts deleted objects.
	if err := s.Client.CoreV1().Pods(namespace).DeleteCollection(context.Background(),
		metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	s.await(t, namespace, "nothing is used", func(q *corev1.ResourceQuota) bool { used := q.Status.Used[limited]; return used.IsZero() })
}

// dryRuns are checked and not charged.
func (s *stand) dryRuns(t *testing.T) {
	s.prepare(t, "dry", map[corev1.ResourceName]string{corev1.ResourcePods: "2"})
	before := s.quota(t, "dry")
	if created, denied := s.createMany(t, "dry", "100m", true); created != attempts || denied != 0 {
		t.Errorf("got %d allowed and %d denied, want all allowed", created, denied)
		s.row.Different = append(s.row.Different, "a dry run was denied")
	}
	if after := s.quota(t, "dry"); after.ResourceVersion != before.ResourceVersion {
		t.Errorf("got %v, want what was there: %v", after.Status, before.Status)
		s.row.Different = append(s.row.Different, "a dry run was charged")
	}
	for range 2 {
		if err := s.create("dry", "100m", false); err != nil {
			t.Fatal(err)
		}
	}
	s.awaitReplicas(t, "dry", "pods")
	if created, denied := s.createMany(t, "dry", "100m", true); created != 0 || denied != attempts {
		t.Errorf("got %d allowed and %d denied, want all denied", created, denied)
		s.row.Different = append(s.row.Different, "a dry run was allowed")
	}
}

// names uses names that no object can have, for objects that are looked up to charge a quota that
// is used up. The request is denied as with any name. It must not become a failure, which the
// webhook's failurePolicy would let through.
func (s *stand) names(t *testing.T, hook cluster.Webhook) {
	const class = "gpu"
	s.prepare(t, "names", map[corev1.ResourceName]string{corev1.ResourceName(class + corev1.ResourceClaimsPerClass): "0"})
	hook.FailurePolicy = admissionregistrationv1.Ignore
	s.Validating(t, cluster.Webhook{URL: s.replicas[0].URL, CA: s.authority.PEM, FailurePolicy: admissionregistrationv1.Ignore}, hook)
	for i, owner := range []string{"web", ".", "..", "a/b", "%2F", "UPPER", strings.Repeat("x", 254)} {
		s.row.Cases++
		claim := &resourcev1.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("claim-%d", i), Annotations: map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: owner, UID: "1", Controller: new(true)}},
			},
			Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
				Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class,
					AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1},
			}}}},
		}
		if _, err := s.Client.ResourceV1().ResourceClaims("names").Create(context.Background(), claim,
			metav1.CreateOptions{}); !exceeds(err) {
			t.Errorf("a claim of Pod %.20q: got %v, want that it exceeds the quota", owner, err)
			s.row.Different = append(s.row.Different, fmt.Sprintf("a claim of Pod %.20q is not denied", owner))
		}
	}
}

// denied lets another webhook deny a request that was charged. The charge stays until the
// controller counts again, as when the quota changes.
func (s *stand) denied(t *testing.T) {
	s.prepare(t, "denied", map[corev1.ResourceName]string{corev1.ResourcePods: "5"})
	t.Run("ByAnother", func(t *testing.T) {
		other := cluster.Webhook{
			URL: s.replicas[1].URL + "/validate/AlwaysDeny", CA: s.authority.PEM, Rules: cluster.Rules("CREATE", "", "v1", "pods"),
			Namespaces: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: "denied"}},
		}
		s.Validating(t, cluster.Webhook{URL: s.replicas[0].URL, CA: s.authority.PEM}, other)
		if err := s.create("denied", "100m", false); err == nil {
			t.Error("nobody denied")
		}
	})
	s.row.Cases++
	if used := s.quota(t, "denied").Status.Used[corev1.ResourcePods]; used.Value() != 1 {
		t.Errorf("got %s, want the pod that was not made charged", used.String())
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"hard": map[string]string{"pods": "6"}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Client.CoreV1().ResourceQuotas("denied").Patch(context.Background(), name, types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	s.await(t, "denied", "it is counted anew",
		func(q *corev1.ResourceQuota) bool { used := q.Status.Used[corev1.ResourcePods]; return used.IsZero() })
}

// updates is the series that counts writes of quotas.
const updates = `fastadmit_cluster_live_requests_total{resource="resourcequotas",result="done",verb="update"}`

// failedUpdates is the series that counts writes that failed or whose result is unknown.
const failedUpdates = `fastadmit_cluster_live_requests_total{resource="resourcequotas",result="failed",verb="update"}`

// sum returns the sum of a series of all replicas.
func (s *stand) sum(t *testing.T, series string) (sum int) {
	t.Helper()
	for _, replica := range s.replicas {
		sum += replica.Metric(t, series)
	}
	return sum
}

// tookPart checks that both replicas have tried to charge. One may have lost all its writes to the
// other.
func (s *stand) tookPart(t *testing.T) {
	t.Helper()
	for _, replica := range s.replicas {
		writes, conflicts := replica.Metric(t, updates), replica.Metric(t, strings.Replace(updates, "done", "conflict", 1))
		t.Logf("%s: %d writes, %d conflicts", replica.URL, writes, conflicts)
		if writes+conflicts == 0 {
			t.Errorf("%s: got no writes, want both replicas to take part", replica.URL)
		}
	}
}
