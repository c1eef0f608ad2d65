//go:build !race && !poison

package app

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

const (
	// chartMemory is the memory limit of a pod in the chart.
	chartMemory = 512 << 20

	// largestMemory is the part of it that the largest reviews may use. The rest is for
	// other connections, of which TestLargestReviews has few.
	largestMemory = chartMemory * 7 / 8
)

// TestProcess is the process that TestLargestReviews starts.
func TestProcess(t *testing.T) {
	args := os.Getenv("FASTADMIT_TEST_ARGS")
	if args == "" {
		t.Skip("it is for other tests to start")
	}
	cmd := NewCommand()
	cmd.SetArgs(strings.Fields(args))
	os.Exit(Execute(cmd))
}

// memoryCgroup makes a control group with the chart's memory limit. It returns the file to
// which a process is written to join it, and the file with the number of times that memory
// ran out.
func memoryCgroup(t *testing.T) (procs string, failed func() string, err error) {
	const v1, v2 = "/sys/fs/cgroup/memory", "/sys/fs/cgroup"
	name := "fastadmit-test-" + strconv.Itoa(os.Getpid())
	dir, limit, swap := filepath.Join(v2, name), "memory.max", "memory.swap.max"
	if _, err := os.Stat(filepath.Join(v2, "cgroup.controllers")); err != nil {
		dir, limit, swap = filepath.Join(v1, name), "memory.limit_in_bytes", ""
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", nil, err
	}
	t.Cleanup(func() {
		for range 100 {
			if os.Remove(dir) == nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Errorf("cannot remove %s", dir)
	})
	if err := os.WriteFile(filepath.Join(dir, limit), []byte(strconv.Itoa(chartMemory)), 0o600); err != nil {
		return "", nil, err
	}
	if swap != "" {
		_ = os.WriteFile(filepath.Join(dir, swap), []byte("0"), 0o600) // swap may not exist
	}
	return filepath.Join(dir, "cgroup.procs"), func() string {
		events, err := os.ReadFile(filepath.Join(dir, "memory.events"))
		if errors.Is(err, os.ErrNotExist) {
			events, err = os.ReadFile(filepath.Join(dir, "memory.oom_control"))
		}
		return fmt.Sprint(string(events), err)
	}, nil
}

// A process is fastadmit serve in a process of its own.
type process struct {
	cmd     *exec.Cmd
	address string
}

// start starts the server in the control group with the file procs, or in that of the test
// if procs is "".
func start(t *testing.T, procs string, args ...string) *process {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", `[ -z "$0" ] || echo $$ > "$0"; exec "$@"`, procs, os.Args[0], "-test.run=^TestProcess$")
	cmd.Env = append(os.Environ(), "FASTADMIT_TEST_ARGS="+strings.Join(append([]string{
		"serve", "--bind-address=127.0.0.1", "--secure-port=0", "--metrics-bind-address=127.0.0.1:0"}, args...), " "),
		// limitMemory finds the same in a container, which sees its own control group as the
		// root.
		"GOMEMLIMIT="+strconv.Itoa(chartMemory*8/10))
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	match := ready.FindStringSubmatch(line)
	if match == nil {
		t.Fatalf("got ready line %q, %v", line, err)
	}
	return &process{cmd, match[1]}
}

// peak returns the highest memory use of the process in bytes, without the pages of its
// binary, which the kernel can reclaim.
func (p *process) peak(t *testing.T) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	kilobytes := func(name string) (n int64) {
		_, text, _ := strings.Cut(string(status), name)
		if _, scanErr := fmt.Sscan(text, &n); scanErr != nil {
			t.Fatalf("the process has no %s %v, %v", name, scanErr, err)
		}
		return n
	}
	return (kilobytes("VmHWM:") - kilobytes("RssFile:")) << 10
}

const attackedState = `
apiVersion: v1
kind: Namespace
metadata:
  name: attacked
  labels:
    pod-security.kubernetes.io/enforce: restricted
    pod-security.kubernetes.io/warn: restricted
    pod-security.kubernetes.io/audit: baseline
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: default, namespace: attacked}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: some, namespace: attacked}
spec: {hard: {pods: "10", requests.cpu: "10"}}
status: {hard: {pods: "10", requests.cpu: "10"}, used: {pods: "1", requests.cpu: "0"}}
---
apiVersion: v1
kind: LimitRange
metadata: {name: defaults, namespace: attacked}
spec:
  limits:
  - type: Container
    default: {cpu: 500m, memory: 512Mi}
    defaultRequest: {cpu: 100m, memory: 128Mi}
    max: {cpu: "1"}
`

// TestLargestReviews sends the worst review for each plugin, in a control group with the
// chart's memory limit where one can be made. It sends as many at once as the limit for
// bodies in flight allows, and the last byte of each only when the server has the rest of
// all. All are answered, and memory is left: the process used 390 MiB, and 490 without
// codec.StringMax. Without reserved memory, the process would be killed: a review of images
// takes up to 130 MiB besides its body.
func TestLargestReviews(t *testing.T) {
	if testing.Short() {
		t.Skip("takes many seconds")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "state.yaml"), []byte(attackedState), 0o600); err != nil {
		t.Fatal(err)
	}
	var enabled []string
	for _, plugin := range handlers.InTree(handlers.DefaultOptions()) {
		needsConfiguration := plugin.RequiresConfig
		if !alone[plugin.Name] && !needsConfiguration {
			enabled = append(enabled, plugin.Name)
		}
	}
	procs, failed, noCgroup := memoryCgroup(t)
	if noCgroup != nil {
		procs = ""
	}
	p := start(t, procs, "--enable-admission-plugins="+strings.Join(enabled, ","), "--cluster-state-dir="+dir,
		"--allow-unauthenticated-writes")

	const most = (32 << 20) - 1000
	list := func(size int, format, element string) string {
		return fmt.Sprintf(format, strings.TrimSuffix(strings.Repeat(element+",", (size-len(format))/(len(element)+1)), ","))
	}
	containers := list(15_000_000, `{"spec":{"containers":[%s]}}`, `{"name":"a","image":"b","resources":{},"imagePullPolicy":"Never"}`)
	empty := list(most, `{"spec":{"initContainers":[%s]}}`, `{}`)
	aliases := list(most, `{"spec":{"hostAliases":[%s]}}`, `{}`)
	update := list(most/2, `{"spec":{"containers":[%s]}}`, `0`)
	storable := list(34_000*145, `{"spec":{"containers":[%s]}}`,
		`{"name":"aaaa","image":"b","resources":{},"terminationMessagePath":"/dev/termination-log",`+
			`"terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}`)
	images := list(8<<20-1000, `{"spec":{"containers":[%s]}}`, `{"image":"b"}`)
	account := func(size int) string {
		return `{"metadata":{},"spec":{"serviceAccountName":"` + strings.Repeat("a", size) + `"}}`
	}
	for _, round := range [][][3]string{
		{{"/mutate", containers}, {"/mutate", storable}, {"/mutate/AlwaysPullImages", update, update}, {"/validate/ResourceQuota", empty}},
		{{"/mutate", empty}, {"/validate/PodSecurity", empty}, {"/validate/AlwaysPullImages", empty}, {"/validate/PodSecurity", aliases}},
		slices.Repeat([][3]string{{"/mutate/AlwaysPullImages", images}}, 16),
		slices.Repeat([][3]string{{"/mutate/ServiceAccount", account(codec.StringMax)}}, 16),
		slices.Repeat([][3]string{{"/mutate/ServiceAccount", account(most)}}, 4),
	} {
		var group, begun sync.WaitGroup
		begun.Add(len(round))
		for _, sent := range round {
			group.Go(func() { p.review(t, &begun, sent[0], sent[1], sent[2]) })
		}
		group.Wait()
	}
	peak := p.peak(t)
	t.Logf("at most %d MiB were in use", peak>>20)
	if peak > largestMemory {
		t.Errorf("%d bytes were in use, want at most %d", peak, int64(largestMemory))
	}
	t.Run("cgroup", func(t *testing.T) {
		if noCgroup != nil {
			t.Skipf("cannot make a control group: %v", noCgroup)
		}
		if events := failed(); !strings.Contains(events, "oom_kill 0") {
			t.Errorf("the control group says %s", events)
		}
	})
}

// A lastByte is the end of a body. It waits until all other bodies have been begun.
type lastByte struct {
	begun *sync.WaitGroup
	once  sync.Once
}

// Read implements io.Reader. It returns no byte, but waits.
func (l *lastByte) Read([]byte) (int, error) {
	l.reached()
	l.begun.Wait()
	return 0, io.EOF
}

// reached tells the others not to wait for this body.
func (l *lastByte) reached() { l.once.Do(l.begun.Done) }

// review sends a review. It tries again if the server asks for a retry or the time was over,
// because the test measures memory, not the speed of the machine.
func (p *process) review(t *testing.T, begun *sync.WaitGroup, path, object, old string) {
	last := &lastByte{begun: begun}
	defer last.reached()
	operation := "UPDATE"
	if old == "" {
		operation, old = "CREATE", "null"
	}
	body := []byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1","kind":{"group":"",` +
		`"version":"v1","kind":"Pod"},` +
		`"resource":{"group":"","version":"v1","resource":"pods"},"namespace":"attacked","operation":"` + operation + `",` +
		`"userInfo":{"username":"a"},"object":` + object + `,"oldObject":` + old + `}}`)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: servertest.TLS.Clone()}, Timeout: 2 * time.Minute}
	defer client.CloseIdleConnections()
	for range 30 {
		most := len(body) - 1
		request, err := http.NewRequest(http.MethodPost, "https://"+p.address+path+"?timeout=30s",
			io.MultiReader(bytes.NewReader(body[:most]), last, bytes.NewReader(body[most:])))
		if err != nil {
			t.Errorf("%s: %v", path, err)
			return
		}
		request.ContentLength = int64(len(body))
		request.Header.Set("Content-Type", "application/json")
		response, err := client.Do(request)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			return
		}
		last.reached()
		answer, err := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode == http.StatusTooManyRequests || bytes.Contains(answer, []byte("it took too long")) ||
			bytes.Contains(answer, []byte("deadline exceeded")) {
			time.Sleep(time.Second)
			continue
		}
		if response.StatusCode != http.StatusOK || err != nil {
			t.Errorf("%s: got %s, %v, %.300s", path, response.Status, err, answer)
		}
		return
	}
	t.Errorf("%s: got no answer", path)
}
