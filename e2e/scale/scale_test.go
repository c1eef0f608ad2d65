// Package scale measures fastadmit in a cluster with many objects: how long it takes until
// it knows them, what memory it then has, and what changes cost.
package scale

import (
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fastadmit/fastadmit/e2e/cluster"
)

// The defaults take seconds. 10,000 namespaces, 5,000 nodes and 50,000 pods are the bounds
// that Kubernetes documents for a cluster, less two thirds of the pods.
var (
	namespaces = flag.Int("namespaces", 50, "how many namespaces there are")
	nodes      = flag.Int("nodes", 100, "how many nodes there are")
	pods       = flag.Int("pods", 500, "how many pods there are")
	binary     = flag.String("fastadmit", cluster.Built("fastadmit"), "the binary to measure")
)

const creators = 50 // of objects, at the same time

// sets are plugins that know much of a cluster.
var sets = []struct {
	plugins string
	objects map[string]*int // by their resource, that it must know
}{
	{"PodSecurity,PodNodeSelector", map[string]*int{"namespaces": namespaces}},
	{"NodeRestriction", map[string]*int{"nodes": nodes, "pods": pods}},
	{"NodeRestriction,PodSecurity,PodNodeSelector,PodTopologyLabels,ServiceAccount,LimitRanger", map[string]*int{"namespaces": namespaces, "nodes": nodes, "pods": pods}},
}

// What a process may have (docs/operations.md). With NodeRestriction it had 47 MiB without objects, and
// 163 of these 195 at most, after a second list of 50,000 pods, 5,000 nodes and 10,000 namespaces
// with a service account each.
const (
	baseBytes   = 90 << 20
	objectBytes = 2000
	podBytes    = 1200
)

// TestScale fills an API server and starts fastadmit with sets of plugins.
func TestScale(t *testing.T) {
	s := cluster.StartEtcd(t).StartAPIServer(t, cluster.APIServerOptions{})
	begun := time.Now()
	fill(t, s)
	t.Logf("%d namespaces, %d nodes and %d pods, made in %v", *namespaces, *nodes, *pods, time.Since(begun).Round(time.Second))
	most := int64(baseBytes + podBytes*(*pods) + objectBytes*(2*(*namespaces)+(*nodes))) // each namespace has a service account
	var table strings.Builder
	for _, set := range sets {
		f, took := start(t, s, set.plugins, set.objects)
		fmt.Fprintf(&table, "%s\n\tready after %v and %v of processor time, %d MiB, at most %d\n",
			set.plugins, took.Round(time.Millisecond), cpu(t, f), memory(t, f, "VmRSS")>>20, memory(t, f, "VmHWM")>>20)
		other, took := start(t, s, set.plugins, set.objects)
		fmt.Fprintf(&table, "\ta second replica is ready after %v and %v of processor time\n", took.Round(time.Millisecond), cpu(t, other))
		other.Stop(t)
		before, used := time.Now(), cpu(t, f)
		changed := storm(t, s, f, set.objects)
		fmt.Fprintf(&table, "\t%d changes in %v and %v of processor time, at most %d MiB\n",
			changed, time.Since(before).Round(time.Millisecond), cpu(t, f)-used, memory(t, f, "VmHWM")>>20)
		used = cpu(t, f)
		s.Kill()
		s.StartAgain()
		before = time.Now()
		follows(t, s, f, set.objects)
		fmt.Fprintf(&table, "\tfollows an API server that was restarted after %v and %v of processor time, at most %d MiB\n",
			time.Since(before).Round(time.Millisecond), cpu(t, f)-used, memory(t, f, "VmHWM")>>20)
		if got := memory(t, f, "VmHWM"); got > most {
			t.Errorf("%s: got %d MiB at most, want %d", set.plugins, got>>20, most>>20)
		}
		f.Stop(t)
	}
	t.Logf("\n%s", table.String())
}

// fill makes the objects.
func fill(t *testing.T, s *cluster.APIServer) {
	t.Helper()
	ctx := t.Context()
	each(t, *namespaces, func(i int) error {
		_, err := s.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: namespace(i), Labels: map[string]string{"team": strconv.Itoa(i), "pod-security.kubernetes.io/enforce": "baseline"},
			Annotations: map[string]string{"example.com/owner": fmt.Sprintf("team-%d@example.com", i)},
		}}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		_, err = s.Client.CoreV1().ServiceAccounts(namespace(i)).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
		return err
	})
	each(t, *nodes, func(i int) error {
		_, err := s.Client.CoreV1().Nodes().Create(ctx, node(i), metav1.CreateOptions{})
		return err
	})
	each(t, *pods, func(i int) error {
		p := pod(i)
		_, err := s.Client.CoreV1().Pods(p.Namespace).Create(ctx, p, metav1.CreateOptions{})
		return err
	})
}

// each does something n times, with several at once.
func each(t *testing.T, n int, do func(i int) error) {
	t.Helper()
	var next atomic.Int64
	var working sync.WaitGroup
	for range creators {
		working.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := do(i); err != nil && !apierrors.IsAlreadyExists(err) {
					t.Error(err)
					return
				}
			}
		})
	}
	working.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

func namespace(i int) string { return fmt.Sprintf("team-%05d", i%*namespaces) }

func nodeName(i int) string { return fmt.Sprintf("ip-10-%d-%d-17.internal", i/250, i%250) }

// node has the labels that clouds give.
func node(i int) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(i), Labels: map[string]string{
		"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", "kubernetes.io/hostname": nodeName(i),
		"node.kubernetes.io/instance-type": "m6i.4xlarge", "topology.kubernetes.io/zone": "eu-central-1a",
		"topology.kubernetes.io/region": "eu-central-1", "example.com/pool": "general",
	}}}
}

// pod is one as a Deployment makes it.
func pod(i int) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("server-6b555cbb46-%05d", i), Namespace: namespace(i), Labels: map[string]string{"app": "server", "pod-template-hash": "6b555cbb46"},
		},
		Spec: corev1.PodSpec{
			NodeName: nodeName(i % *nodes), ServiceAccountName: "default",
			Volumes: []corev1.Volume{{Name: "kube-api-access-abcde", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
				Sources: []corev1.VolumeProjection{
					{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: new(int64(3607))}},
					{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}}},
				},
			}}}},
		},
	}
	for _, name := range []string{"server", "proxy"} {
		c := corev1.Container{Name: name, Image: "registry.example.com/team/server:v1.2.3"}
		for k := range 10 {
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("VARIABLE_%d", k), Value: "some value or other"})
		}
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
	return p
}

// start starts fastadmit and waits until it is ready, which is when it knows all.
func start(t *testing.T, s *cluster.APIServer, plugins string, objects map[string]*int) (*cluster.Fastadmit, time.Duration) {
	t.Helper()
	begun := time.Now()
	f := cluster.StartFastadmit(t, *binary, cluster.NewAuthority(t), "--kubeconfig="+s.Kubeconfig(t), "--enable-admission-plugins="+plugins)
	cluster.Await(t, "fastadmit to be ready", func() error {
		answer, err := http.Get(f.Metrics + "/readyz")
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return errors.New(answer.Status)
		}
		return nil
	})
	took := time.Since(begun)
	for resource, want := range objects {
		if got := known(t, f, resource); got < *want {
			t.Errorf("%s: got %d %s, want %d", plugins, got, resource, *want)
		}
	}
	return f, took
}

func known(t *testing.T, f *cluster.Fastadmit, resource string) int {
	t.Helper()
	return f.Metric(t, fmt.Sprintf("fastadmit_cluster_objects{resource=%q}", resource))
}

// storm changes all pods, or all namespaces where no pods are known, and waits until fastadmit has
// seen the last change.
func storm(t *testing.T, s *cluster.APIServer, f *cluster.Fastadmit, objects map[string]*int) (changed int) {
	t.Helper()
	ctx := t.Context()
	if objects["pods"] == nil {
		changed = *namespaces
		each(t, changed, func(i int) error {
			_, err := s.Client.CoreV1().Namespaces().Patch(ctx, namespace(i), types.MergePatchType, patch("labels"), metav1.PatchOptions{})
			return err
		})
		follows(t, s, f, objects)
		return changed
	}
	changed = *pods
	each(t, changed, func(i int) error {
		p := pod(i)
		_, err := s.Client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.MergePatchType, patch("annotations"), metav1.PatchOptions{})
		return err
	})
	follows(t, s, f, objects)
	return changed
}

var patches atomic.Int64

func patch(field string) []byte {
	return fmt.Appendf(nil, `{"metadata":{%q:{"example.com/changed":"%d"}}}`, field, patches.Add(1))
}

// follows waits until fastadmit knows of an object that is made now, of each resource.
func follows(t *testing.T, s *cluster.APIServer, f *cluster.Fastadmit, objects map[string]*int) {
	t.Helper()
	name, ctx := fmt.Sprintf("new-%d", patches.Add(1)), t.Context()
	for resource := range objects {
		before := known(t, f, resource)
		var err error
		switch resource {
		case "namespaces":
			_, err = s.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		case "nodes":
			_, err = s.Client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		case "pods":
			p := pod(0)
			p.Name = name
			_, err = s.Client.CoreV1().Pods(p.Namespace).Create(ctx, p, metav1.CreateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
		cluster.Await(t, "fastadmit to know a new object of "+resource, func() error {
			if got := known(t, f, resource); got <= before {
				return fmt.Errorf("got %d, want more than %d", got, before)
			}
			return nil
		})
	}
}

// memory returns a figure of /proc/PID/status, in bytes.
func memory(t *testing.T, f *cluster.Fastadmit, field string) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", f.PID()))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(field + `:\s+(\d+) kB`).FindSubmatch(text)
	if m == nil {
		t.Fatalf("no %s in %s", field, text)
	}
	kilobytes, err := strconv.ParseInt(string(m[1]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kilobytes << 10
}

// cpu returns the processor time that the process has used.
func cpu(t *testing.T, f *cluster.Fastadmit) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", f.PID()))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+2:]))
	var ticks int64
	for _, field := range fields[11:13] { // utime and stime, in hundredths of a second
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
