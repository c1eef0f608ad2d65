package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/fastadmit/fastadmit/bench"
	"github.com/fastadmit/fastadmit/bench/apiserver"
	"github.com/fastadmit/fastadmit/bench/process"
	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/internal/memory"
)

const (
	// looksEvery is the time between two measurements of the process.
	looksEvery = 10 * time.Second

	// metricsMax is how long the server may take to answer a request for its metrics.
	metricsMax = 20 * time.Second

	// settleMax is how long the process may take to close its connections after the load. Idle ones
	// stay open for 120 s.
	settleMax = 150 * time.Second

	// growthMax is the maximum ratio of memory in the last quarter of the time to that in the
	// second quarter. Large reviews come all the time, so the peaks of both should be equal.
	growthMax = 1.25

	token = "soak-caller"
)

// admissionConfiguration has limits that the load never reaches, because a decision that depends on
// time could not be compared.
const admissionConfiguration = `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: EventRateLimit
  configuration:
    apiVersion: eventratelimit.admission.k8s.io/v1alpha1
    kind: Configuration
    limits:
    - {type: Server, qps: 1000000, burst: 1000000}
    - {type: User, qps: 1000000, burst: 1000000, cacheSize: 100}
- name: ImagePolicyWebhook
  path: image.yaml
- name: InitialResources
  path: initial.yaml
- name: PersistentVolumeLabel
  configuration:
    apiVersion: fastadmit.io/v1alpha1
    kind: PersistentVolumeLabelConfiguration
    volumes:
    - {provider: gce, id: disk-1, labels: {topology.kubernetes.io/zone: zone-1}}
- name: ValidatingAdmissionPolicy
  configuration:
    apiVersion: fastadmit.io/v1alpha1
    kind: ValidatingAdmissionPolicyConfiguration
    customResources: true
    staticManifestsDir: validating
- name: ValidatingAdmissionWebhook
  configuration:
    apiVersion: fastadmit.io/v1alpha1
    kind: WebhookAdmissionConfiguration
    customResources: true
- name: MutatingAdmissionPolicy
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: MutatingAdmissionPolicyConfiguration
    staticManifestsDir: mutating
`

// configuration ignores failures of the plugin that asks the API server about users' rights,
// because files cannot answer that.
const configuration = `apiVersion: fastadmit.io/v1alpha1
kind: Configuration
plugins:
- {name: OwnerReferencesPermissionEnforcement, failurePolicy: Ignore}
`

// validatingPolicy denies some of the recordings and reads most of their bytes.
const validatingPolicy = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: soak.static.k8s.io}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*/*"]}
  validations:
  - expression: object == null || !has(object.metadata) || !has(object.metadata.labels) || object.metadata.labels.all(k, k != 'soak' ` +
	`&& object.metadata.labels[k] != 'soak')
  - expression: object == null || oldObject == null || !(object == oldObject)
    message: nothing changes
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: soak.static.k8s.io}
spec: {policyName: soak.static.k8s.io, validationActions: [Deny]}
`

// mutatingPolicy changes every object.
const mutatingPolicy = `apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: soak.static.k8s.io}
spec:
  reinvocationPolicy: IfNeeded
  matchConstraints:
    resourceRules:
    - {apiGroups: ["*"], apiVersions: ["*"], operations: [CREATE, UPDATE], resources: ["*"]}
  matchConditions:
  - {name: labelled, expression: "has(object.metadata) && has(object.metadata.labels)"}
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: '[JSONPatch{op: "add", path: "/metadata/labels/soak-test", value: string(object.metadata.labels.size())}]'
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: soak.static.k8s.io}
spec: {policyName: soak.static.k8s.io}
`

// A server is the process under test.
type server struct {
	*process.Server
	target  bench.Target
	address string        // host:port on loopback
	ended   chan struct{} // closed when the process has ended
	err     error         // why it ended; set before ended is closed
	group   group
}

// start starts the binary in a control group of its own.
func start(o *options, dir, backend, api string) (*server, error) {
	if err := write(dir, backend, api); err != nil {
		return nil, err
	}
	group := newGroup(o.memory)
	// The shell enters the control group before it becomes fastadmit.
	cmd := exec.Command("sh", "-c", `echo $$ >"$0" && exec "$@"`, group.entrance(), o.binary, "serve",
		"--bind-address=0.0.0.0", "--secure-port=0", "--metrics-bind-address=127.0.0.1:0", fmt.Sprintf("--profiling=%t", o.profiles != ""),
		"--kubeconfig="+filepath.Join(dir, "kubeconfig"),
		"--enable-admission-plugins="+strings.Join(enabled(), ","), "--admission-control-config-file="+
			filepath.Join(dir, "admission.yaml"),
		"--config="+filepath.Join(dir, "config.yaml"), "--token-auth-file="+filepath.Join(dir, "tokens.csv"))
	// fastadmit would set it itself from the memory limit of a container.
	cmd.Env = append(os.Environ(), "GOMEMLIMIT="+strconv.Itoa(int(float64(o.memory)*memory.ContainerShare)))
	running, err := process.Start(cmd, filepath.Join(dir, "log"), cmd.Start)
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(strings.TrimPrefix(running.URL, "https://"))
	if err != nil {
		running.Kill()
		return nil, err
	}
	s := &server{Server: running, address: "127.0.0.1:" + port, ended: make(chan struct{}), group: group}
	go func() {
		defer close(s.ended)
		s.err = s.Wait()
	}()
	s.target = bench.Target{
		Name: "fastadmit", URL: "https://" + s.address, Token: token,
		TLS:        &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // its certificate is in its memory only
		MetricsURL: s.Metrics + "/metrics", PID: s.PID,
	}
	return s, nil
}

// awaitReady waits until the server is ready, and prints how long that takes.
func (s *server) awaitReady(ctx context.Context) error {
	begin := time.Now()
	if err := s.AwaitReady(ctx); err != nil {
		return err
	}
	fmt.Printf("ready after %s\n", time.Since(begin).Round(time.Millisecond))
	return nil
}

// write writes the files of the server.
func write(dir, backend, api string) error {
	files := map[string][]byte{
		"config.yaml": []byte(configuration), "admission.yaml": []byte(admissionConfiguration),
		"tokens.csv":             []byte(token + ",kube-apiserver,1\n"),
		"validating/policy.yaml": []byte(validatingPolicy), "mutating/policy.yaml": []byte(mutatingPolicy),
		"validating/expressions.yaml": []byte(expressionPolicy), "validating/memory.yaml": memoryPolicies(),
		"mutating/patches.yaml": []byte(patchPolicy),
		"kubeconfig":            apiserver.Kubeconfig(api),
	}
	maps.Copy(files, backendFiles(backend))
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// enabled returns all plugins except AlwaysDeny.
func enabled() []string {
	var names []string
	for _, plugin := range handlers.InTree(handlers.DefaultOptions()) {
		if plugin.Name != "AlwaysDeny" {
			names = append(names, plugin.Name)
		}
	}
	return names
}

var namespaceField = regexp.MustCompile(`"namespace":"([a-z0-9-]+)"`)

// withNamespaces adds the namespaces of the recordings. Otherwise decisions would depend on which
// of them NamespaceAutoProvision has created already.
func withNamespaces(cluster []byte) []byte {
	known := map[string]bool{"shop": true} // already in the file
	for _, name := range corpus.Names() {
		for _, match := range namespaceField.FindAllSubmatch(corpus.MustRead(name), -1) {
			if namespace := string(match[1]); !known[namespace] {
				known[namespace] = true
				cluster = fmt.Appendf(cluster, "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: %q}\n", namespace)
			}
		}
	}
	return cluster
}

// kill ends the process and removes its control group.
func (s *server) kill() {
	s.Kill()
	s.group.remove()
}

// A look is a measurement of the process.
type look struct {
	resident    int64 // bytes
	files       int   // open
	goroutines  int
	panics      int
	connections int
	refusals    []string // series of the metrics that count refused requests and closed connections
}

func (l look) String() string {
	return fmt.Sprintf("%d MiB resident, %d goroutines, %d connections, %d open files, %d panics",
		l.resident>>20, l.goroutines, l.connections, l.files, l.panics)
}

// look measures the process.
func (s *server) look() (look, error) {
	var l look
	var err error
	if l.resident, err = s.status("VmRSS"); err != nil {
		return l, err
	}
	files, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(s.PID), "fd"))
	if err != nil {
		return l, err
	}
	l.files = len(files)
	content, err := fetch(context.Background(), s.target.MetricsURL)
	if err != nil {
		return l, err
	}
	for line := range bytes.Lines(content) {
		name, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		n, err := strconv.ParseFloat(string(value), 64)
		switch {
		case err != nil:
		case string(name) == "go_goroutines":
			l.goroutines = int(n)
		case string(name) == `fastadmit_connections{port="webhooks"}`:
			l.connections = int(n)
		case bytes.Contains(name, []byte("panic")):
			l.panics += int(n)
		case n > 0 && (bytes.HasPrefix(name, []byte("fastadmit_connections_shed_total")) ||
			bytes.HasPrefix(name, []byte("fastadmit_refused_requests_total"))):
			l.refusals = append(l.refusals, string(bytes.TrimSpace(line)))
		}
	}
	return l, nil
}

// status returns a number of bytes of the process's status (proc(5)).
func (s *server) status(name string) (int64, error) {
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(s.PID), "status"))
	if err != nil {
		return 0, err
	}
	_, rest, found := strings.Cut(string(status), name+":")
	if !found {
		return 0, fmt.Errorf("the process has no %s, it has ended", name)
	}
	kilobytes, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	return kilobytes << 10, err
}

// A watch is the result of measuring the process over time.
type watch struct {
	quarters [4]look // the maximum of each quarter of the time
	err      error
}

// watch measures the process until ctx ends.
func (s *server) watch(ctx context.Context, duration time.Duration) *watch {
	w := new(watch)
	begin := time.Now()
	ticker := time.NewTicker(min(looksEvery, duration/40))
	defer ticker.Stop()
	for {
		select {
		case <-s.ended:
			w.err = cmp.Or(s.err, errors.New("the server exited with 0, want it to serve until the end"))
			return w
		case <-ctx.Done():
			return w
		case <-ticker.C:
		}
		l, err := s.look()
		if err != nil {
			w.err = errors.Join(w.err, fmt.Errorf("cannot measure the process: %w", err))
			continue
		}
		fmt.Printf("%s after %s: %s\n", time.Now().UTC().Format(time.TimeOnly), time.Since(begin).Round(time.Second), l)
		q := &w.quarters[min(3, int(4*time.Since(begin)/duration))]
		q.resident, q.files = max(q.resident, l.resident), max(q.files, l.files)
		q.goroutines, q.connections, q.panics = max(q.goroutines, l.goroutines), max(q.connections, l.connections), max(q.panics, l.panics)
	}
}

// judge prints the maxima, and returns an error if they are not acceptable.
func (w *watch) judge() error {
	for i, q := range w.quarters {
		fmt.Printf("most in quarter %d: %s\n", i+1, q)
	}
	if w.err != nil {
		return w.err
	}
	if last := w.quarters[3]; last.panics > 0 {
		return fmt.Errorf("got %d panics, want none", last.panics)
	}
	if second, last := w.quarters[1].resident, w.quarters[3].resident; float64(last) > growthMax*float64(second) {
		return fmt.Errorf("memory grows: got %d MiB in the last quarter and %d MiB in the second one", last>>20, second>>20)
	}
	return nil
}

// settles waits until the process has no more goroutines and files than before the load, or ctx ends.
func (s *server) settles(ctx context.Context, before look) error {
	const others = 5 // goroutines of the runtime, and the connection for the metrics
	var l look
	for begin := time.Now(); time.Since(begin) < settleMax && ctx.Err() == nil; time.Sleep(time.Second) {
		var err error
		if l, err = s.look(); err != nil {
			return err
		}
		if l.goroutines <= before.goroutines+others && l.files <= before.files+others {
			fmt.Printf("after: %s; at most %s in the control group\n%s\n", l, s.group.most(), strings.Join(l.refusals, "\n"))
			return nil
		}
	}
	return fmt.Errorf("the process keeps goroutines or files after the load: got %s, want about as before it: %s", l, before)
}
