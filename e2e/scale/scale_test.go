// Package scale measures fastadmit in a cluster with many objects: how long it takes until
// it knows them, what memory it then has, and what changes cost.
package scale

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes/scheme"

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

// sets are plugins that read many objects of a cluster.
var sets = []struct {
	plugins string
	objects map[string]*int // by resource: the objects that it must read
}{
	{"PodSecurity,PodNodeSelector", map[string]*int{"namespaces": namespaces}},
	{"NodeRestriction", map[string]*int{"nodes": nodes, "pods": pods}},
	{"NodeRestriction,PodSecurity,PodNodeSelector,PodTopologyLabels,ServiceAccount,LimitRanger",
		map[string]*int{"namespaces": namespaces, "nodes": nodes, "pods": pods}},
}

// The memory that a process may use
const (
	baseBytes   = 85 << 20
	objectBytes = 2000
	podBytes    = 900
)

// TestScale fills an API server and starts fastadmit with sets of plugins.
func TestScale(t *testing.T) {
	begun := time.Now()
	c := fill(t)
	t.Logf("%d namespaces, %d nodes and %d pods, made in %v", *namespaces, *nodes, *pods, time.Since(begun).Round(time.Second))
	most := int64(baseBytes + podBytes*(*pods) + objectBytes*(2*(*namespaces)+(*nodes))) // each namespace has a service account
	for _, set := range sets {
		t.Log(set.plugins) // and each figure at once, in case the test is stopped
		f, took := c.start(t, set.plugins, set.objects)
		t.Logf("ready after %v and %v of processor time, %d MiB, at most %d",
			took.Round(time.Millisecond), cpu(t, f), memory(t, f, "VmRSS")>>20, memory(t, f, "VmHWM")>>20)
		other, took := c.start(t, set.plugins, set.objects)
		t.Logf("a second replica is ready after %v and %v of processor time", took.Round(time.Millisecond), cpu(t, other))
		other.Stop(t)
		before, used := time.Now(), cpu(t, f)
		changed := c.storm(t, f, set.objects)
		t.Logf("%d changes in %v and %v of processor time, at most %d MiB",
			changed, time.Since(before).Round(time.Millisecond), cpu(t, f)-used, memory(t, f, "VmHWM")>>20)
		used = cpu(t, f)
		c.Kill()
		c.StartAgain()
		before = time.Now()
		c.follows(t, f, set.objects)
		t.Logf("follows an API server that was restarted after %v and %v of processor time, at most %d MiB",
			time.Since(before).Round(time.Millisecond), cpu(t, f)-used, memory(t, f, "VmHWM")>>20)
		if got := memory(t, f, "VmHWM"); got > most {
			t.Errorf("%s: got %d MiB at most, want %d", set.plugins, got>>20, most>>20)
		}
		f.Stop(t)
	}
}

// A filled is a cluster with the objects. They are written to etcd as the API server would
// write them, which takes seconds instead of the API server's minutes.
type filled struct {
	*cluster.APIServer
	etcd      *cluster.Etcd
	namespace *corev1.Namespace // as the API server stores the first of each
	account   *corev1.ServiceAccount
	node      *corev1.Node
	pod       *corev1.Pod
}

// fill makes the objects.
func fill(t *testing.T) *filled {
	t.Helper()
	c, ctx := &filled{etcd: cluster.StartEtcd(t)}, t.Context()
	c.APIServer = c.etcd.StartAPIServer(t, cluster.APIServerOptions{})
	var err error
	if c.namespace, err = c.Client.CoreV1().Namespaces().Create(ctx, newNamespace(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if c.account, err = c.Client.CoreV1().ServiceAccounts(c.namespace.Name).Create(ctx, account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if c.node, err = c.Client.CoreV1().Nodes().Create(ctx, newNode(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if c.pod, err = c.Client.CoreV1().Pods(c.namespace.Name).Create(ctx, newPod(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.changeNamespaces(t)
	c.write(t, *namespaces, func(i int) (key string, object runtime.Object) {
		account := c.account.DeepCopy()
		account.Namespace, account.UID = namespace(i), uuid.NewUUID()
		return "serviceaccounts/" + account.Namespace + "/" + account.Name, account
	})
	c.write(t, *nodes, func(i int) (key string, object runtime.Object) {
		node := c.node.DeepCopy()
		node.Name, node.UID = nodeName(i), uuid.NewUUID()
		node.Labels["kubernetes.io/hostname"] = node.Name
		return "minions/" + node.Name, node
	})
	c.changePods(t)
	return c
}

// changeNamespaces writes all namespaces anew.
func (c *filled) changeNamespaces(t *testing.T) {
	t.Helper()
	version := strconv.FormatInt(versions.Add(1), 10)
	c.write(t, *namespaces, func(i int) (key string, object runtime.Object) {
		n := c.namespace.DeepCopy()
		n.Name, n.UID = namespace(i), uid(i)
		n.Labels["kubernetes.io/metadata.name"], n.Labels["team"] = n.Name, strconv.Itoa(i)
		n.Annotations["example.com/owner"] = fmt.Sprintf("team-%d@example.com", i)
		n.Labels["example.com/changed"] = version
		return "namespaces/" + n.Name, n
	})
}

// changePods writes all pods anew.
func (c *filled) changePods(t *testing.T) {
	t.Helper()
	version := strconv.FormatInt(versions.Add(1), 10)
	c.write(t, *pods, func(i int) (key string, object runtime.Object) {
		p := c.pod.DeepCopy()
		p.Name, p.Namespace, p.UID = fmt.Sprintf("server-6b555cbb46-%05d", i), namespace(i), uid(i)
		p.Spec.NodeName = nodeName(i % *nodes)
		p.Annotations = map[string]string{"example.com/changed": version}
		return "pods/" + p.Namespace + "/" + p.Name, p
	})
}

var versions atomic.Int64 // counts the writes

// uid returns the same for each version of an object.
func uid(i int) types.UID {
	return types.UID(fmt.Sprintf("5b3f0b4e-6a5e-4d0e-9d6e-%012d", i))
}

// write writes n objects.
func (c *filled) write(t *testing.T, n int, object func(i int) (key string, object runtime.Object)) {
	t.Helper()
	encoder := scheme.Codecs.EncoderForVersion(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), corev1.SchemeGroupVersion)
	values := make(map[string][]byte, n)
	for i := range n {
		key, object := object(i)
		object.(metav1.Object).SetResourceVersion("") // etcd stores it itself
		value, err := runtime.Encode(encoder, object)
		if err != nil {
			t.Fatal(err)
		}
		values["/registry/"+key] = value
	}
	if err := c.etcd.Put(values); err != nil {
		t.Fatal(err)
	}
}

func namespace(i int) string { return fmt.Sprintf("team-%05d", i%*namespaces) }

func nodeName(i int) string { return fmt.Sprintf("ip-10-%d-%d-17.internal", i/250, i%250) }

func newNamespace() *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: namespace(0), Labels: map[string]string{"pod-security.kubernetes.io/enforce": "baseline"},
		Annotations: map[string]string{"example.com/owner": "nobody"},
	}}
}

// newNode returns a Node with the labels that clouds set.
func newNode() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(0), Labels: map[string]string{
		"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
		"node.kubernetes.io/instance-type": "m6i.4xlarge", "topology.kubernetes.io/zone": "eu-central-1a",
		"topology.kubernetes.io/region": "eu-central-1", "example.com/pool": "general",
	}}}
}

// newPod returns a Pod as a Deployment creates it.
func newPod() *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "server", Namespace: namespace(0), Labels: map[string]string{"app": "server", "pod-template-hash": "6b555cbb46"},
		},
		Spec: corev1.PodSpec{
			NodeName: nodeName(0), ServiceAccountName: "default",
			Volumes: []corev1.Volume{{Name: "kube-api-access-abcde",
				VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
					Sources: []corev1.VolumeProjection{
						{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: new(int64(3607))}},
						{ConfigMap: &corev1.ConfigMapProjection{
							LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}}},
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

// start starts fastadmit and waits until it is ready, which is when it has read everything.
func (c *filled) start(t *testing.T, plugins string, objects map[string]*int) (*cluster.Fastadmit, time.Duration) {
	t.Helper()
	begun := time.Now()
	f := cluster.StartFastadmit(t, *binary, cluster.NewAuthority(t), "--kubeconfig="+c.Kubeconfig(t),
		"--enable-admission-plugins="+plugins)
	f.AwaitReady(t)
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
func (c *filled) storm(t *testing.T, f *cluster.Fastadmit, objects map[string]*int) (changed int) {
	t.Helper()
	if objects["pods"] != nil {
		c.changePods(t)
		changed = *pods
	} else {
		c.changeNamespaces(t)
		changed = *namespaces
	}
	c.follows(t, f, objects)
	return changed
}

// follows creates an object of each resource, and waits until fastadmit has read it.
func (c *filled) follows(t *testing.T, f *cluster.Fastadmit, objects map[string]*int) {
	t.Helper()
	name, ctx := fmt.Sprintf("new-%d", versions.Add(1)), t.Context()
	for resource := range objects {
		before := known(t, f, resource)
		var err error
		switch resource {
		case "namespaces":
			_, err = c.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
				metav1.CreateOptions{})
		case "nodes":
			_, err = c.Client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		case "pods":
			p := newPod()
			p.Name = name
			_, err = c.Client.CoreV1().Pods(p.Namespace).Create(ctx, p, metav1.CreateOptions{})
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
