package odd

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"
)

// taskDelay is how long the tasks of an odd BMC take.
const taskDelay = 3 * time.Second

// FailedTask is what the message of a task says that fails.
const FailedTask = "Unable to connect to the image file: the server answered 404."

// orderTask is how a BMC answers an order by a task.
type orderTask struct {
	// fails: the task ends with an exception, and nothing is done.
	fails bool
	// location is the header Location for the path of the task; nil: there is none.
	location func(path string, r *http.Request) string
	// noBody leaves the task out of the answer to the order.
	noBody bool
	// monitor: the path answers 202 until the task is over, then with the answer of the order, as a task monitor does.
	monitor bool
	// forgets: the task is gone when it is over.
	forgets bool
}

const orderTaskPath = "/redfish/v1/TaskService/Tasks/Odd"

// serve takes the orders of the place by tasks that take a while.
func (t orderTask) serve(p Place) serveFunc {
	var mu sync.Mutex
	var number int
	tasks := map[string]*runningTask{}
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		mu.Lock()
		task := tasks[cleanPath(r.URL.Path)]
		mu.Unlock()
		if task != nil && r.Method == http.MethodGet {
			t.show(w, cleanPath(r.URL.Path), task)
			return
		}
		if !p.is(r) || !isOrder(r) || r.Method == http.MethodDelete {
			next.ServeHTTP(w, r)
			return
		}
		text, _ := readBody(r)
		mu.Lock()
		number++
		path := fmt.Sprint(orderTaskPath, number)
		task = &runningTask{fails: t.fails}
		tasks[path] = task
		mu.Unlock()
		later := laterRequest(r, text)
		time.AfterFunc(taskDelay, func() { task.run(later, next) })
		if t.location != nil {
			w.Header().Set("Location", t.location(path, r))
		}
		if t.noBody {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		sendJSON(w, http.StatusAccepted, task.document(path))
	}
}

func (t orderTask) show(w http.ResponseWriter, path string, task *runningTask) {
	doc := task.document(path)
	over := task.over()
	switch {
	case over != nil && t.forgets:
		sendJSON(w, http.StatusNotFound, refusalDocument("Base.1.8.ResourceMissingAtURI", "The resource at the URI was not found."))
	case over != nil && t.monitor && !t.fails:
		sendJSON(w, http.StatusOK, refusalDocument("Base.1.8.Success", "The request completed successfully."))
	case over != nil && t.monitor:
		sendJSON(w, http.StatusBadRequest, refusalDocument("Odd.1.0.MountFailed", FailedTask))
	case t.monitor:
		sendJSON(w, http.StatusAccepted, doc)
	default:
		sendJSON(w, http.StatusOK, doc)
	}
}

// runningTask is one order that was taken by a task.
type runningTask struct {
	mu     sync.Mutex
	fails  bool
	answer *httptest.ResponseRecorder // when it is over
}

func (t *runningTask) over() *httptest.ResponseRecorder {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.answer
}

func (t *runningTask) run(r *http.Request, next http.Handler) {
	answer := httptest.NewRecorder()
	answer.Code = http.StatusInternalServerError
	if !t.fails {
		answer = askService(r, next)
	}
	t.mu.Lock()
	t.answer = answer
	t.mu.Unlock()
}

func (t *runningTask) document(path string) map[string]any {
	doc := map[string]any{"@odata.id": path, "@odata.type": "#Task.v1_4_3.Task", "Id": path[len(orderTaskPath)-3:], "Name": "Task", "TaskState": "Running", "TaskStatus": "OK"}
	over := t.over()
	if over == nil {
		return doc
	}
	doc["TaskState"], doc["PercentComplete"] = "Completed", 100
	if over.Code >= 300 {
		message := map[string]any{"MessageId": "Odd.1.0.MountFailed", "Message": FailedTask}
		if !t.fails {
			var e struct {
				Error struct {
					Info []map[string]any `json:"@Message.ExtendedInfo"`
				} `json:"error"`
			}
			if json.Unmarshal(over.Body.Bytes(), &e) == nil && len(e.Error.Info) > 0 {
				message = e.Error.Info[0]
			}
		}
		doc["TaskState"], doc["TaskStatus"], doc["Messages"] = "Exception", "Critical", []any{message}
	}
	return doc
}
