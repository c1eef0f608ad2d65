package loss

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const (
	// prefix is the prefix of all network namespaces and interfaces of this test, so that the next
	// run finds those of a run that was killed. With a number after it, it is as long as an
	// interface name may be.
	prefix = "fastadmit-e2e"

	// subnet has the addresses of pods, from the range for network tests (RFC 2544): a /30 for
	// each, in which the machine is 1 and the pod 2.
	subnet = "198.18"
)

// lockNetwork waits until no other run has pods, and removes what a killed run left behind. It
// returns an error if network namespaces are not possible.
func lockNetwork(t *testing.T) error {
	t.Helper()
	if os.Geteuid() != 0 {
		return errors.New("network namespaces need root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		return fmt.Errorf("network namespaces need iproute2: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(os.TempDir(), prefix+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lock.Close() })
	listed, err := ip("netns", "list")
	if err != nil {
		return err
	}
	for line := range strings.Lines(listed) {
		if name, _, _ := strings.Cut(strings.TrimSpace(line), " "); strings.HasPrefix(name, prefix) {
			err = errors.Join(err, removeNamespace(name))
		}
	}
	probe := namespaceName(0)
	if err := errors.Join(err, makeNamespace(0)); err != nil {
		_ = removeNamespace(probe) // if there is one
		return err
	}
	_, err = ip("netns", "exec", probe, "true")
	return errors.Join(err, removeNamespace(probe))
}

// namespaceName and address return the name and address of the pod with this number.
func namespaceName(number int) string { return fmt.Sprintf("%s%d", prefix, number) }
func address(number int) string       { return fmt.Sprintf("%s.%d.2", subnet, number) }

// removeNamespace removes a network namespace, and first its interface, which would otherwise
// disappear only later.
func removeNamespace(name string) error {
	_, _ = ip("link", "delete", name) // fails if there is none
	_, err := ip("netns", "delete", name)
	return err
}

// ip runs Debian's ip and returns what it prints.
func ip(arguments ...string) (string, error) {
	printed, err := exec.Command("ip", arguments...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("ip %s: %w: %s", strings.Join(arguments, " "), err, printed)
	}
	return string(printed), nil
}

// addNamespace makes the network namespace of a pod, until the test ends.
func addNamespace(t *testing.T, number int) {
	t.Helper()
	err := makeNamespace(number)
	t.Cleanup(func() {
		if err := removeNamespace(namespaceName(number)); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

func makeNamespace(number int) error {
	name := namespaceName(number)
	for _, command := range []string{
		fmt.Sprintf("netns add %s", name),
		fmt.Sprintf("link add %s type veth peer name eth0 netns %s", name, name),
		fmt.Sprintf("address add %s.%d.1/30 dev %s", subnet, number, name),
		fmt.Sprintf("link set %s up", name),
		fmt.Sprintf("-netns %s address add %s/30 dev eth0", name, address(number)),
		fmt.Sprintf("-netns %s link set eth0 up", name),
		fmt.Sprintf("-netns %s link set lo up", name),
	} {
		if _, err := ip(strings.Fields(command)...); err != nil {
			return err
		}
	}
	return nil
}

// connections returns how many connections a process's network namespace has
// accepted so far.
func connections(t *testing.T, pid int) int {
	t.Helper()
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/snmp", pid))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(string(content)) {
		fields := strings.Fields(line)
		if fields[0] != "Tcp:" {
			continue
		}
		if names == nil {
			names = fields
			continue
		}
		for i, name := range names {
			if name == "PassiveOpens" {
				var count int
				if _, err := fmt.Sscan(fields[i], &count); err != nil {
					t.Fatal(err)
				}
				return count
			}
		}
	}
	t.Fatalf("got no PassiveOpens in\n%s", content)
	return 0
}
