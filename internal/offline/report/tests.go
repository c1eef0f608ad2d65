package report

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/fastadmit/fastadmit/internal/printable"
)

// TestSuite is a suite of tests in a file.
type TestSuite struct {
	Name, File string
	Cases      []TestCase
	Output     string // about the suite
}

// TestCase is a test. Without a Failure and an Error, it passed or was skipped.
type TestCase struct {
	Name    string
	Line    int
	Took    time.Duration
	Failure string // differences from the expected result
	Error   string // why the test could not run
	Skipped bool
}

// WriteJUnit writes suites of tests as JUnit XML. tool is the name of the command.
func WriteJUnit(w io.Writer, tool string, suites []TestSuite) error {
	j := &junit{w: w, o: &Options{Tool: tool}}
	for i := range suites {
		given := &suites[i]
		j.suite = &junitSuite{Name: printable.Word(given.Name)}
		for _, test := range given.Cases {
			test.Name, test.Failure, test.Error = printable.Word(test.Name), printable.Lines(test.Failure), printable.Lines(test.Error)
			j.suite.addTest(printable.Word(given.File), &test)
		}
		if given.Output != "" {
			j.suite.Output = &junitOutput{printable.Lines(given.Output)}
		}
		if err := j.flush(); err != nil {
			return err
		}
	}
	return j.Close(nil)
}

func (s *junitSuite) addTest(file string, test *TestCase) {
	c := junitCase{Name: test.Name, Class: s.Name, File: file, Line: test.Line, Time: fmt.Sprintf("%.3f", test.Took.Seconds())}
	s.Tests++
	switch {
	case test.Error != "":
		c.Error = fault("broken", test.Error)
		s.Errors++
	case test.Failure != "":
		c.Failure = fault("unexpected", test.Failure)
		s.Failures++
	case test.Skipped:
		c.Skipped = new(junitFault)
		s.Skipped++
	}
	s.Cases = append(s.Cases, c)
}

func fault(kind, text string) *junitFault {
	first, _, _ := strings.Cut(text, "\n")
	return &junitFault{Type: kind, Message: first, Text: text}
}
